#include "plan/make_problem.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cluster/kind_order.h"
#include "dataflow/parse_graph.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline plan {
namespace {

int64_t reward_models(const Config& config) {
  return std::count_if(config.reward.begin(), config.reward.end(),
                       [](const RewardConfig& r) { return r.type == "model"; });
}

Result<Graph> stated_graph(const Config& config, const ReadText& read) {
  if (config.plan.graph.empty()) return configured_graph(config);
  BRAID_ASSIGN(const std::string text, read(config.plan.graph).at("plan.graph"));
  return parse_graph(text, config.plan.graph);
}

// Other engines bring advantages together in one place.
Result<Graph> planned_graph(const Config& config, const ReadText& read) {
  BRAID_ASSIGN(Graph graph, stated_graph(config, read));
  if (config.plan.train_engine.empty()) note_what_it_looks_at(config.algorithm, &graph);
  return graph;
}

// The size that a section states, or nothing.
Result<std::optional<ModelSize>> stated_size(const std::string& section, const std::string& size,
                                             const std::string& path, const ReadText& read) {
  if (!size.empty()) {
    BRAID_ASSIGN(const ModelSize model, resolve_model_size(size, read).at(section + ".size"));
    return std::optional(model);
  }
  if (path.empty()) return std::optional<ModelSize>();
  const std::string file = path + "/config.json";
  BRAID_ASSIGN(
      const std::string text,
      read(file).at(cat(section, ".path (planning without weights: set ", section, ".size)")));
  BRAID_ASSIGN(const ModelSize model, parse_model_size(text, file));
  return std::optional(model);
}

Result<ModelSize> policy_size(const Config& config, const ReadText& read) {
  BRAID_ASSIGN(const auto size, stated_size("model", config.model.size, config.model.path, read));
  if (size) return *size;
  if (!config.model.config.empty()) return resolve_model_size(config.model.config, read);
  return invalid_input(
      "model: no model given; set model.size to a catalogue name such as llama2-7b or to a "
      "config.json, or model.path to a Hugging Face folder");
}

Result<ModelSize> reward_size(const Config& config, const ReadText& read,
                              const std::string& role = "reward") {
  const RewardConfig* reward = reward_model(config, role);
  if (reward == nullptr) return policy_size(config, read);
  BRAID_ASSIGN(const auto size, stated_size("reward", reward->size, reward->path, read));
  if (size) return *size;
  return policy_size(config, read);
}

Result<ModelSize> size_of_role(const std::string& role, const Config& config,
                               const ReadText& read) {
  if (is_reward_role(role)) return reward_size(config, read, role);
  const bool critic = role == "critic", teacher = role == "teacher";
  if (!critic && !teacher && role != "reference") return policy_size(config, read);
  const RoleConfig& section = critic ? config.critic : teacher ? config.teacher : config.reference;
  BRAID_ASSIGN(const auto size, stated_size(role, section.size, section.path, read));
  if (size) return *size;
  if (critic && config.critic.init_from == "reward_model") return reward_size(config, read);
  return policy_size(config, read);
}

// A role that follows another one takes its weights number by number.
Status check_followers(const Config& config, PlanningProblem* problem) {
  for (const RoleSpec& spec : problem->graph.roles) {
    if (!changes(problem->graph, spec.role) || spec.weights_from.value.empty()) continue;
    RoleModel& role = problem->models.at(spec.role.value);
    const RoleModel& source = problem->models.at(spec.weights_from.value);
    ModelSize named = role.spec;
    named.name = source.spec.name;
    if (named != source.spec)
      return invalid_input(cat(spec.role, ".sync_every: the ", spec.role, " (", role.spec.name,
                               ") has other sizes than the ", spec.weights_from, " (",
                               source.spec.name, ") and cannot take its weights; remove it, or ",
                               spec.role, ".path"));
    role.keeps_average = config.reference.ema > 0 && role.precision != Precision::kF32;
  }
  return ok_status();
}

Status add_models(const Config& config, const ReadText& read, PlanningProblem* problem) {
  BRAID_ASSIGN(const Precision precision, parse_precision(config.model.dtype).at("model.dtype"));
  for (const RoleSpec& spec : problem->graph.roles) {
    RoleModel model;
    BRAID_ASSIGN(ModelSize size, size_of_role(spec.role.value, config, read));
    model.spec = {std::move(size)};
    model.precision = precision;
    if (spec.trained && config.lora.rank > 0) model.trainable = {true, config.lora.rank};
    problem->models[spec.role.value] = model;
  }
  const auto actor = problem->models.find("actor"), reference = problem->models.find("reference");
  const auto end = problem->models.end();
  const bool own_weights = !config.reference.path.empty() || !config.reference.size.empty();
  if (actor != end && reference != end && actor->second.trainable.lora && !own_weights)
    reference->second.shares_weights_with = "actor";
  return check_followers(config, problem);
}

// Drawn lengths end at the limit of their configuration where they state no end of their own.
void cut_at(int64_t limit, LengthDistribution* lengths) {
  if (lengths->kind == LengthDistribution::Kind::kLognormal && lengths->longest == 0)
    lengths->longest = limit;
}

// A table of positions has no row for a longer sequence.
Status check_positions(const PlanningProblem& problem) {
  const Workload& work = problem.workload;
  const int64_t tokens =
      longest_tokens(work.prompt) + (generates(problem.graph) ? longest_tokens(work.response) : 0);
  for (const auto& [role, model] : problem.models)
    if (const int64_t rows = model.spec.learned_positions; rows > 0 && tokens > rows)
      return invalid_input(cat("rollout.max_response_length: sequences of up to ", tokens,
                               " tokens exceed the ", rows, " positions of the ", role, " (",
                               model.spec.name, "); shorten prompts or responses"));
  return ok_status();
}

bool fetches_pairs(const Graph& graph) {
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kFetch && call.function == "pairs") return true;
  return false;
}

Status add_workload(const Config& config, const ReadText& read, PlanningProblem* problem) {
  Workload& work = problem->workload;
  work.prompts = config.rollout.prompts_per_step;
  if (carried_steps(problem->graph) > 0) work.prompts_in_flight = prompts_in_flight(config.rollout);
  work.samples_per_prompt = generates(problem->graph)       ? config.rollout.samples_per_prompt
                            : fetches_pairs(problem->graph) ? 2
                                                            : 1;
  work.minibatches = config.train.minibatches;
  work.epochs = config.train.epochs_per_rollout;
  work.draws = config.workload.draws;
  BRAID_TRY(check_sequences(work).at("rollout.prompts_per_step"));
  const int64_t sequences = work.prompts * work.samples_per_prompt;
  if (sequences % work.minibatches != 0)
    return invalid_input(cat(
        "train.minibatches: ", sequences, " sequences of a step do not divide into ",
        work.minibatches,
        " mini-batches; nearest legal values: ", nearest_divisors(sequences, work.minibatches)));
  BRAID_ASSIGN(work.prompt, read_lengths(config.workload.prompt_length, "workload.prompt_length",
                                         config.data.max_prompt_length, read));
  BRAID_ASSIGN(work.response,
               read_lengths(config.workload.response_length, "workload.response_length",
                            config.rollout.max_response_length, read));
  BRAID_TRY(check_length_limit(work.prompt, "workload.prompt_length", config.data.max_prompt_length,
                               "data.max_prompt_length"));
  cut_at(config.data.max_prompt_length, &work.prompt);
  work.prompt_limit = config.data.max_prompt_length;
  if (!generates(problem->graph)) return check_positions(*problem);
  BRAID_TRY(check_length_limit(work.response, "workload.response_length",
                               config.rollout.max_response_length, "rollout.max_response_length"));
  cut_at(config.rollout.max_response_length, &work.response);
  work.response_limit = config.rollout.max_response_length;
  return check_positions(*problem);
}

// The whole of a profile is the cost model's; its device belongs to the cluster.
Result<GpuSpec> profiled_gpu(const std::string& path, const ReadText& read) {
  BRAID_ASSIGN(const std::string text, read(path));
  BRAID_ASSIGN(const Json json, parse_json(text, path));
  BRAID_ASSIGN(const Json gpu, json_field<Json>(json, "gpu").at(path));
  return gpu_from_json(gpu).at(path);
}

// What plan.file, placement and parallel say of the devices: nodes, and devices of each.
struct DeviceShape {
  int nodes = 1, each = 1;
};

Result<DeviceShape> stated_shape(const Config& config, const Graph& graph, const ReadText& read) {
  DeviceShape shape;
  BRAID_ASSIGN(shape.each, devices_stated(config, graph));
  if (!config.plan.file.empty()) {
    BRAID_ASSIGN(const std::string text, read(config.plan.file).at("plan.file"));
    BRAID_ASSIGN(const std::optional<Cluster> nodes, stated_nodes(text, config.plan.file));
    if (nodes)
      return DeviceShape{static_cast<int>(nodes->nodes.size()), nodes->nodes.front().devices};
    BRAID_ASSIGN(const ExecutionPlan plan, parse_plan(text, config.plan.file));
    shape.each = plan.devices;
  }
  if (shape.each <= kMaxDevicesPerNode) return shape;
  return invalid_input(cat(config.plan.file.empty() ? "parallel" : "plan.file", ": ", shape.each,
                           " devices, and no cluster says how many; a node has at most ",
                           kMaxDevicesPerNode,
                           ", so say which there are, such as cluster={gpu: this-machine, nodes: ",
                           (shape.each + kMaxDevicesPerNode - 1) / kMaxDevicesPerNode,
                           ", gpus_per_node: ", kMaxDevicesPerNode, "}"));
}

Status missing_cluster(const Config& config, int devices) {
  const std::string example =
      cat("cluster={gpu: a100-80g, nodes: 1, gpus_per_node: ", std::min(devices, 8), "}");
  if (config.device == "emulated")
    return invalid_input(
        cat("cluster: is missing; device emulated stands for the devices that it "
            "names, such as ",
            example));
  return invalid_input(cat("cluster: is missing; with device ", config.device,
                           " it says which GPUs the plan is for, such as ", example));
}

// The section `cluster`, where on the CPU this machine is meant if no device is named.
YamlNode named_cluster(const Config& config) {
  YamlNode cluster = config.cluster;
  const YamlNode* nodes = cluster.find("nodes");
  const bool names = cluster.find("gpu") != nullptr || cluster.find("profile") != nullptr ||
                     (nodes != nullptr && nodes->kind == YamlNode::Kind::kList);
  if (config.device == "cpu" && cluster.kind == YamlNode::Kind::kMap && !names)
    cluster.map.emplace_back(
        "gpu", YamlNode(YamlNode::Kind::kScalar, "this-machine", false, cluster.origin));
  return cluster;
}

Result<Cluster> planned_cluster(const Config& config, const Graph& graph, const ReadText& read) {
  Node node;
  if (config.cluster.kind != YamlNode::Kind::kNull) {
    BRAID_ASSIGN(Cluster stated,
                 cluster_from_yaml(named_cluster(config), [&read](const std::string& path) {
                   return profiled_gpu(path, read);
                 }).at("cluster"));
    node = stated.nodes.front();
    // A machine has as many processes as the plan says, unless somebody counts them.
    const bool counted =
        config.cluster.find("nodes") != nullptr || config.cluster.find("gpus_per_node") != nullptr;
    if (counted || node.gpu.architecture != "cpu") return stated;
  } else {
    BRAID_ASSIGN(const int devices, devices_stated(config, graph));
    if (config.device != "cpu") return missing_cluster(config, devices);
    BRAID_ASSIGN(node.gpu, find_gpu("this-machine"));
  }
  BRAID_ASSIGN(const DeviceShape shape, stated_shape(config, graph, read));
  BRAID_ASSIGN(Cluster out, make_cluster(node.gpu, shape.nodes, shape.each, node.nic_gbps_per_gpu));
  for (Node& each : out.nodes) each.profile = node.profile;
  return out;
}

}  // namespace

Status check_sequences(const Workload& workload) {
  constexpr int64_t kMostSequences = 1 << 20;
  if (workload.prompts <= kMostSequences / workload.samples_per_prompt) return ok_status();
  return invalid_input(cat(workload.prompts, " prompts x ", workload.samples_per_prompt,
                           " samples: at most ", kMostSequences,
                           " sequences of a step are planned"));
}

std::string reward_role(size_t number) {
  return number == 0 ? "reward" : cat("reward_", number + 1);
}

bool is_reward_role(const std::string& role) {
  return role == "reward" || role.rfind("reward_", 0) == 0;
}

const RewardConfig* reward_model(const Config& config, const std::string& role) {
  const auto index = reward_model_index(config, role);
  return index ? &config.reward[*index] : nullptr;
}

std::optional<size_t> reward_model_index(const Config& config, const std::string& role) {
  size_t number = 0;
  for (size_t i = 0; i < config.reward.size(); ++i)
    if (config.reward[i].type == "model" && reward_role(number++) == role) return i;
  return std::nullopt;
}

Graph with_reward_model(Graph graph) {
  const RoleId reward{"reward"};
  bool used = false;
  for (Call& call : graph.calls)
    if (call.kind == CallKind::kReward) {
      call.role = reward;
      used = true;
    }
  if (used && find_role(graph, reward) == nullptr) graph.roles.push_back({reward, true, false});
  return graph;
}

Graph with_reward_models(Graph graph, size_t models) {
  if (models == 0) return graph;
  if (models == 1) return with_reward_model(std::move(graph));
  return with_score_calls(std::move(graph), models);
}

Graph with_score_calls(Graph graph, size_t models) {
  std::vector<Call> calls;
  for (Call& call : graph.calls) {
    const bool scores = call.kind == CallKind::kReward;
    // Prompts and responses; then come what else rewards see.
    const std::vector<std::string> texts(call.reads.begin(), call.reads.begin() + (scores ? 2 : 0));
    for (size_t number = 0; scores && number < models; ++number) {
      const std::string name =
          cat(call.name == "reward" ? "score" : "score_" + call.name, "_", number + 1);
      calls.push_back({name,
                       CallKind::kInfer,
                       RoleId{reward_role(number)},
                       "scores",
                       texts,
                       {{name, FieldType::kReal, FieldShape::kPerSample}}});
      calls.back().samples_per_prompt = call.samples_per_prompt;
      call.reads.push_back(name);
    }
    calls.push_back(std::move(call));
  }
  if (calls.size() > graph.calls.size())
    for (size_t number = 0; number < models; ++number)
      graph.roles.push_back({RoleId{reward_role(number)}, true, false});
  graph.calls = std::move(calls);
  declare_sizes(&graph);
  return graph;
}

Result<Graph> configured_graph(const Config& config) {
  BRAID_ASSIGN(Graph graph, make_graph(config.algorithm));
  if (config.critic.shared_trunk) {
    BRAID_ASSIGN(graph, with_shared_trunk(std::move(graph)));
  }
  graph = with_reward_models(std::move(graph), static_cast<size_t>(reward_models(config)));
  if (config.rollout.in_flight > 1 && generates(graph)) {
    BRAID_ASSIGN(graph, carried_over(std::move(graph), config.rollout.carried_steps));
  }
  return with_moving_reference(std::move(graph), config.reference.sync_every);
}

bool shares_prompts(const Config& config, const Graph& graph) {
  return config.train.share_prompts == "auto" && generates(graph) &&
         config.rollout.samples_per_prompt > 1;
}

bool maps_frozen(const Config& config, const Cluster& cluster) {
  return config.train.offload != "off" && config.plan.train_engine.empty() &&
         std::all_of(cluster.nodes.begin(), cluster.nodes.end(),
                     [](const Node& node) { return node.gpu.architecture == "cpu"; });
}

// Other engines sum as their backends do.
Reduction reduction_of(const Config& config, const Cluster& cluster) {
  if (!config.plan.train_engine.empty() || config.train.reduction == "native")
    return Reduction::kNative;
  const bool on_cpus = std::all_of(cluster.nodes.begin(), cluster.nodes.end(),
                                   [](const Node& node) { return node.gpu.architecture == "cpu"; });
  return config.train.reduction == "ordered" || on_cpus ? Reduction::kOrdered : Reduction::kNative;
}

// Python functions may be given all samples of a step in one call; what is recorded one rank
// writes.
bool asks_rewards_together(const Config& config) {
  return config.rollout.record ||
         std::any_of(config.reward.begin(), config.reward.end(), [](const RewardConfig& entry) {
           const bool step =
               entry.batch == "auto" ? entry.signature != "verl" : entry.batch == "step";
           return entry.type == "python" && step;
         });
}

Result<PlanningProblem> make_problem(const Config& config, const ReadText& read) {
  PlanningProblem problem;
  BRAID_ASSIGN(problem.graph, planned_graph(config, read));
  BRAID_TRY(add_models(config, read, &problem));
  BRAID_TRY(add_workload(config, read, &problem));
  BRAID_ASSIGN(Cluster listed, planned_cluster(config, problem.graph, read));
  problem.cluster = in_kind_order(std::move(listed));
  problem.memory_limit_gib = config.plan.memory_limit_gib;
  problem.max_concurrent = config.rollout.max_concurrent;
  problem.host_memory_gib = config.plan.host_memory_gib;
  problem.may_offload = config.plan.offload != "never";
  problem.maps_frozen = maps_frozen(config, problem.cluster);
  problem.reduction = reduction_of(config, problem.cluster);
  problem.rewards_together = asks_rewards_together(config);
  problem.leaves_out_truncated = config.algorithm.mask_truncated;
  problem.train_engine = config.plan.train_engine;
  problem.generate_engine = config.plan.generate_engine;
  // Other engines compute each sample whole.
  problem.workload.share_prompts =
      shares_prompts(config, problem.graph) && problem.train_engine.empty();
  return problem;
}

}  // namespace braid::inline plan

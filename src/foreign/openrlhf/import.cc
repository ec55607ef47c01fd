// From OpenRLHF's arguments to a planning problem and the plan that it executes: a group of devices
// for each model, ZeRO inside, vLLM engines on devices of their own or shared.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "foreign/openrlhf/openrlhf.h"
#include "foreign/resolve.h"
#include "plan/make_problem.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using Notes = std::vector<std::string>;
using S = OpenRlhfSettings;

// Null for another name.
const char* algorithm_of(const std::string& estimator) {
  for (const OpenRlhfEstimator& entry : kOpenRlhfEstimators)
    if (estimator == entry.theirs) return entry.ours;
  return nullptr;
}

Result<Graph> graph_of(const S& s, Notes* notes) {
  AlgorithmOptions options;
  options.kl.coef = s.init_kl_coef;
  const char* const known = algorithm_of(s.estimator);
  // Another name is that of a newer method, which scores groups as GRPO does.
  options.name = known != nullptr ? known : "grpo";
  if (known == nullptr)
    notes->push_back(
        cat("advantage_estimator ", s.estimator, " is planned as GRPO: the nearest graph"));
  BRAID_ASSIGN(Graph graph, make_graph(options));
  const bool rule = !s.remote_reward.empty() || !s.agent.empty() || s.reward_pretrain.empty();
  return rule ? graph : with_reward_model(std::move(graph));
}

Status add_models(const S& s, const ImportOptions& options, PlanningProblem* problem,
                  Notes* notes) {
  for (const RoleSpec& spec : problem->graph.roles) {
    const std::string& role = spec.role.value;
    std::string key = "pretrain", path = s.pretrain;
    if (role == "reward") key = "reward_pretrain", path = s.reward_pretrain;
    if (role == "critic" && !s.reward_pretrain.empty()) path = s.reward_pretrain;
    if (role == "critic" && !s.critic_pretrain.empty())
      key = "critic_pretrain", path = s.critic_pretrain;
    RoleModel model;
    BRAID_ASSIGN(ModelSize size, foreign::model_of_path(key, path, options, notes));
    model.spec = {std::move(size)};
    if (spec.trained && s.lora_rank > 0) model.trainable = {true, s.lora_rank};
    if (role == "reference" && s.lora_rank > 0) model.shares_weights_with = "actor";
    problem->models[role] = model;
  }
  return ok_status();
}

Status add_workload(const S& s, PlanningProblem* problem) {
  Workload& work = problem->workload;
  work.prompts = s.rollout_batch;
  work.samples_per_prompt = s.samples;
  work.epochs = s.max_epochs;
  if (s.rollout_batch < 1 || s.samples < 1 || s.max_epochs < 1 || s.train_batch < 1)
    return invalid_input("batch sizes, n_samples_per_prompt and max_epochs must be at least 1");
  const int64_t sequences = s.rollout_batch * s.samples;
  if (sequences % s.train_batch != 0)
    return invalid_input(cat("train_batch_size: ", s.train_batch, " must divide the ", sequences,
                             " sequences of a rollout; nearest legal values: ",
                             nearest_divisors(sequences, s.train_batch)));
  work.minibatches = sequences / s.train_batch;
  return ok_status();
}

// Which devices each group has: its name and how many.
struct Groups {
  std::vector<std::pair<std::string, int64_t>> sizes;  // in the order of the devices
  std::map<std::string, std::string> group_of;         // role (or "engines") -> group
};

int64_t devices_of(const OpenRlhfGroup& group) { return group.nodes * group.per_node; }

Groups group_devices(const S& s, const Graph& graph) {
  Groups groups;
  const auto own = [&](const std::string& name, int64_t size) {
    groups.sizes.emplace_back(name, size);
    groups.group_of[name] = name;
  };
  own("actor", devices_of(s.actor));
  const auto has = [&](const char* role) { return find_role(graph, RoleId{role}) != nullptr; };
  const auto place = [&](const char* role, const OpenRlhfGroup& group, bool shares,
                         const char* host) {
    if (!has(role)) return;
    if (s.colocate_all || (shares && groups.group_of.count(host) > 0))
      groups.group_of[role] = s.colocate_all ? "actor" : groups.group_of[host];
    else
      own(role, devices_of(group));
  };
  place("reference", s.ref, s.colocate_actor_ref, "actor");
  place("critic", s.critic, false, "");
  place("reward", s.reward, s.colocate_critic_reward, "critic");
  if ((s.colocate_all && !s.async_train) || s.vllm_engines == 0)
    groups.group_of["engines"] = "actor";
  else
    own("engines", s.vllm_engines * s.vllm_tp);
  return groups;
}

// Nodes of the usual size, the last one with what is left.
Result<Cluster> cluster_of(const Groups& groups, const ImportOptions& options) {
  int64_t total = 0;
  constexpr int64_t kMost = 1 << 17;
  for (const auto& [name, size] : groups.sizes) {
    if (size < 1 || size > kMost)
      return invalid_input(cat("group ", name, ": must have 1 to ", kMost, " devices, has ", size));
    total += size;
  }
  const int64_t whole = total / options.gpus_per_node, rest = total % options.gpus_per_node;
  if (whole == 0) return foreign::imported_cluster(options, 1, rest);
  BRAID_ASSIGN(Cluster cluster, foreign::imported_cluster(options, whole, options.gpus_per_node));
  if (rest == 0) return cluster;
  BRAID_ASSIGN(const Cluster last, foreign::imported_cluster(options, 1, rest));
  cluster.nodes.push_back(last.nodes.front());
  return cluster;
}

std::map<std::string, DeviceMesh> meshes_of(const Groups& groups) {
  std::map<std::string, DeviceMesh> by_group, out;
  int32_t device = 0;
  for (const auto& [name, size] : groups.sizes)
    for (int64_t i = 0; i < size; ++i) by_group[name].devices.push_back(DeviceId{device++});
  for (const auto& [user, group] : groups.group_of) out[user] = by_group.at(group);
  return out;
}

int64_t legal_count(int64_t each, int64_t size) {
  int64_t count = std::max<int64_t>(1, (each + size - 1) / std::max<int64_t>(1, size));
  while (each % count != 0) ++count;
  return count;
}

Strategy zero_strategy(const S& s, const PlanningProblem& problem, const Call& call,
                       int64_t devices) {
  const bool trains = call.kind == CallKind::kTrainStep;
  Strategy strategy;
  strategy.tp = static_cast<int>(s.ds_tp), strategy.cp = static_cast<int>(s.ring_attention);
  strategy.dp = static_cast<int>(std::max<int64_t>(1, devices / (s.ds_tp * s.ring_attention)));
  const int copies = dense_copies(strategy);
  if (copies > 1 && (trains || s.zero_stage == 3))
    strategy.zero_stage = static_cast<int>(s.zero_stage);
  if (s.zpg > 1 && strategy.zero_stage == 3 && s.zpg < copies && copies % s.zpg == 0)
    strategy.zero_ranks = static_cast<int>(s.zpg);
  if (trains && s.checkpointing) strategy.recompute = Recompute::kFull;
  strategy.in_order = true;
  const int64_t samples = trains ? minibatch_samples(problem) : call_samples(problem, call);
  if (s.dynamic) {
    const int64_t inference = s.rollout_tokens > 0 ? s.rollout_tokens : s.train_tokens;
    strategy.micro_tokens = (trains ? s.train_tokens : inference) * s.ring_attention;
    return strategy;
  }
  strategy.micro_batches = legal_count(std::max<int64_t>(1, samples / strategy.dp),
                                       trains ? s.micro_train : s.micro_rollout);
  return strategy;
}

Strategy engine_strategy(const S& s, const PlanningProblem& problem, const Call& call,
                         int64_t devices, Notes* notes) {
  Strategy strategy;
  strategy.tp = static_cast<int>(s.vllm_tp);
  strategy.dp = static_cast<int>(std::max<int64_t>(1, devices / s.vllm_tp));
  const int64_t tokens = foreign::kv_tokens_of_share(problem, call, strategy, s.vllm_memory);
  if (tokens >= s.prompt_max + s.generate_max)
    strategy.kv_budget_tokens = tokens;
  else
    notes->push_back(cat("vllm_gpu_memory_utilization ", s.vllm_memory,
                         " leaves no room for one sequence beside the weights; planned with all "
                         "free memory"));
  return strategy;
}

void add_residency(const S& s, ExecutionPlan* plan, const Graph& graph) {
  for (const RoleSpec& spec : graph.roles) {
    RolePlan role;
    role.role = spec.role;
    const bool frozen = !spec.trained;
    const bool offloads =
        s.ref_reward_offload || (spec.role.value == "reference" ? s.ref_offload : s.reward_offload);
    if ((frozen && offloads) || (!frozen && s.deepspeed_sleep)) role.weights = Residency::kHost;
    if (!frozen && (s.adam_offload || s.deepspeed_sleep)) role.optimizer = Residency::kHost;
    if (role.weights != Residency::kDevice || role.optimizer != Residency::kDevice)
      plan->roles.push_back(role);
  }
}

ExecutionPlan plan_of(const S& s, const PlanningProblem& problem, const Groups& groups,
                      Notes* notes) {
  ExecutionPlan plan = plan_for(problem);
  const auto meshes = meshes_of(groups);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    const bool samples = call.kind == CallKind::kGenerate;
    const DeviceMesh& mesh = meshes.at(samples ? "engines" : call.role.value);
    const auto devices = static_cast<int64_t>(mesh.devices.size());
    plan.calls.push_back({call.name, mesh,
                          samples ? engine_strategy(s, problem, call, devices, notes)
                                  : zero_strategy(s, problem, call, devices)});
  }
  add_residency(s, &plan, problem.graph);
  plan.staleness = s.async_train ? 1 : 0;
  return plan;
}

// OpenRLHF wants the engines on exactly the actor's devices.
Status check_colocation(const S& s) {
  const int64_t devices = devices_of(s.actor), engines = s.vllm_engines * s.vllm_tp;
  if (!s.colocate_all || s.async_train || s.vllm_engines == 0 || engines == devices)
    return ok_status();
  const bool divides = devices % s.vllm_tp == 0;
  const std::string remedy = divides
                                 ? cat("set vllm_num_engines ", devices / s.vllm_tp)
                                 : cat("set vllm_tensor_parallel_size to a divisor of ", devices,
                                       ", such as ", nearest_divisors(devices, s.vllm_tp));
  return invalid_input(cat("colocate_all_models: vllm_num_engines ", s.vllm_engines,
                           " x vllm_tensor_parallel_size ", s.vllm_tp, " = ", engines,
                           " must equal the actor's ", s.actor.nodes, " x ", s.actor.per_node,
                           " = ", devices, " devices; ", remedy));
}

Status check_sizes(const S& s) {
  const std::pair<const char*, int64_t> sizes[] = {{"vllm_tensor_parallel_size", s.vllm_tp},
                                                   {"ds_tensor_parallel_size", s.ds_tp},
                                                   {"ring_attn_size", s.ring_attention},
                                                   {"zpg", s.zpg},
                                                   {"train_max_tokens_per_gpu", s.train_tokens},
                                                   {"prompt_max_len", s.prompt_max},
                                                   {"generate_max_len", s.generate_max},
                                                   {"actor_num_nodes", s.actor.nodes},
                                                   {"actor_num_gpus_per_node", s.actor.per_node},
                                                   {"ref_num_nodes", s.ref.nodes},
                                                   {"ref_num_gpus_per_node", s.ref.per_node},
                                                   {"critic_num_nodes", s.critic.nodes},
                                                   {"critic_num_gpus_per_node", s.critic.per_node},
                                                   {"reward_num_nodes", s.reward.nodes},
                                                   {"reward_num_gpus_per_node", s.reward.per_node},
                                                   {"micro_train_batch_size", s.micro_train},
                                                   {"micro_rollout_batch_size", s.micro_rollout}};
  constexpr int64_t kLargest = 1 << 24;
  for (const auto& [name, value] : sizes)
    if (value < 1 || value > kLargest)
      return invalid_input(cat(name, " must be 1 to ", kLargest, ", is ", value));
  if (s.vllm_engines < 0 || s.vllm_engines > kLargest)
    return invalid_input(cat("vllm_num_engines must be 0 to ", kLargest, ", is ", s.vllm_engines));
  if (!(s.vllm_memory > 0 && s.vllm_memory <= 1))
    return invalid_input(cat("vllm_gpu_memory_utilization must be above 0 and at most 1, is ",
                             s.vllm_memory, "; such as 0.6"));
  if (s.zero_stage < 0 || s.zero_stage > 3)
    return invalid_input(cat("zero_stage must be 0, 1, 2 or 3, is ", s.zero_stage));
  return check_colocation(s);
}

void note_what_is_lost(const S& s, Notes* notes) {
  const OpenRlhfGroup& a = s.actor;
  if ((s.colocate_all || s.colocate_actor_ref) &&
      (s.ref.nodes != a.nodes || s.ref.per_node != a.per_node))
    notes->push_back(cat("ref_num_nodes ", s.ref.nodes, " x ref_num_gpus_per_node ", s.ref.per_node,
                         " must equal the actor's for OpenRLHF to share devices; planned as ",
                         a.nodes, " x ", a.per_node));
  if (s.vllm_engines == 0)
    notes->push_back("without vLLM engines, generation is planned on the actor's devices");
}

// Longest prompt and response; newer versions limit their sum.
void settle_lengths(const ForeignKeys& keys, S* s, Notes* notes) {
  if (s->max_len < 2) return;
  const bool said = keys.count("rollout.max_new_tokens") + keys.count("generate_max_len") > 0;
  if (said && s->generate_max > 0 && s->generate_max < s->max_len) {
    s->prompt_max = s->max_len - s->generate_max;
    return;
  }
  s->prompt_max = std::min<int64_t>(1024, s->max_len / 2);
  s->generate_max = s->max_len - s->prompt_max;
  notes->push_back(cat("data.max_len=", s->max_len,
                       " limits prompt and response together; planned ", "as ", s->prompt_max,
                       " + ", s->generate_max));
}

// Which generation of flags: its version and how it was told. Errors: an unknown version.
Result<std::string> version_of(const ForeignKeys& keys, const std::string& stated, bool* newer) {
  *newer = std::any_of(keys.begin(), keys.end(),
                       [](const auto& entry) { return is_newer_openrlhf_key(entry.first); });
  if (stated.empty())
    return cat("OpenRLHF ",
               *newer ? "0.10.2 or later (flags with dots)" : "before 0.10.2 (flags without dots)");
  int64_t major = 0, minor = 0, patch = 0;
  const std::vector<std::string> parts = split(stated[0] == 'v' ? stated.substr(1) : stated, '.');
  const bool number = parts.size() >= 2 && parse_int(parts[0], &major) &&
                      parse_int(parts[1], &minor) &&
                      (parts.size() < 3 || parse_int(parts[2], &patch));
  if (!number)
    return invalid_input(
        cat("--framework-version: '", stated, "' is no version of OpenRLHF; such as 0.11.0"));
  *newer = std::make_tuple(major, minor, patch) >= std::make_tuple<int64_t>(0, 10, 2);
  return cat("OpenRLHF ", stated, " (stated)");
}

}  // namespace

int64_t openrlhf_devices(const OpenRlhfSettings& s) {
  Notes notes;
  const auto graph = graph_of(s, &notes);
  if (!graph.ok()) return 0;
  int64_t total = 0;
  for (const auto& [name, size] : group_devices(s, *graph).sizes) total += size;
  return total;
}

Result<ImportedPlan> import_openrlhf(const ForeignKeys& stated, const ImportOptions& options) {
  S s;
  ImportedPlan out;
  bool newer = false;
  BRAID_ASSIGN(out.version, version_of(stated, options.version, &newer));
  if (newer) s.micro_train = s.micro_rollout = 1, s.max_len = 2048;
  out.keys = foreign::account(stated, openrlhf_knowledge());
  const ForeignKeys keys = foreign::resolved(stated);
  BRAID_TRY(foreign::read_settings(openrlhf_table(), keys, &s));
  settle_lengths(keys, &s, &out.notes);
  BRAID_TRY(check_sizes(s));
  BRAID_ASSIGN(out.problem.graph, graph_of(s, &out.notes));
  const Groups groups = group_devices(s, out.problem.graph);
  BRAID_ASSIGN(out.problem.cluster, cluster_of(groups, options));
  BRAID_TRY(add_models(s, options, &out.problem, &out.notes));
  BRAID_TRY(add_workload(s, &out.problem));
  BRAID_TRY(foreign::set_lengths(
      options, {s.prompt_max, s.generate_max, "prompt_max_len", "generate_max_len"}, &out.problem,
      &out.notes));
  out.problem.train_engine = "deepspeed";
  out.problem.generate_engine = "vllm";
  out.problem.reserves_cache = true;
  note_what_is_lost(s, &out.notes);
  out.plan = plan_of(s, out.problem, groups, &out.notes);
  BRAID_TRY(validate(out.plan, out.problem).at("these OpenRLHF arguments"));
  return out;
}

}  // namespace braid::inline foreign

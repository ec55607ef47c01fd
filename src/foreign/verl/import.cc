// From verl's settings to a planning problem and the plan that verl executes: worker groups on all
// of the trainer's devices, engines and models of their own where the job gives them devices.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "foreign/verl/verl.h"
#include "plan/make_problem.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using Notes = std::vector<std::string>;

const VerlWorker& worker_of(const VerlSettings& s, const std::string& role) {
  if (role == "critic") return s.critic;
  if (role == "reward") return s.reward;
  return role == "reference" ? s.ref : s.actor;
}

// The key that names a role's model, and its path.
std::pair<std::string, std::string> model_path(const VerlSettings& s, const std::string& role) {
  if (role == "teacher")
    return {"distillation.teacher_models.teacher_model.model_path", s.teacher_path};
  if (role == "critic" && !s.critic.path.empty()) return {"critic.model.path", s.critic.path};
  if (role == "reward" && !s.reward.path.empty()) return {"reward_model.model.path", s.reward.path};
  return {"actor_rollout_ref.model.path", s.actor.path};
}

Status add_models(const VerlSettings& s, const ImportOptions& options, PlanningProblem* problem,
                  Notes* notes) {
  const int64_t rank = std::max(s.lora_rank, s.megatron_lora_rank);
  for (const RoleSpec& spec : problem->graph.roles) {
    const std::string& role = spec.role.value;
    RoleModel model;
    const auto [key, path] = model_path(s, role);
    BRAID_ASSIGN(ModelSize size, foreign::model_of_path(key, path, options, notes));
    model.spec = {std::move(size)};
    if (role == "actor" && rank > 0) model.trainable = {true, rank};
    if (role == "reference" && rank > 0) model.shares_weights_with = "actor";
    problem->models[role] = model;
  }
  return ok_status();
}

bool separate(const VerlSettings& s) { return s.rollout_pool.nodes > 0; }

// Prompts between two updates of the engine's weights.
int64_t prompts_of(const VerlSettings& s) {
  constexpr int64_t kMost = 1 << 20;
  const auto product = [&](int64_t a, int64_t b) {
    return std::min(kMost, a) * std::min(kMost, b);
  };
  if (s.fully_async) return product(product(s.actor.mini_batch, s.collected_batches), s.sync_every);
  if (s.trainer_mode == "separate_async") return product(s.train_batch_size, s.sync_every);
  // Without filtering the trainer takes what its data loader gives.
  if (!s.filter_groups && !separate(s) && s.gen_batch_size > 0) return s.gen_batch_size;
  return s.train_batch_size;
}

Status add_workload(const VerlSettings& s, PlanningProblem* problem, Notes* notes) {
  Workload& work = problem->workload;
  work.prompts = prompts_of(s);
  work.samples_per_prompt = s.samples;
  work.epochs = s.actor.epochs;
  if (work.prompts < 1 || work.samples_per_prompt < 1 || work.epochs < 1 || s.actor.mini_batch < 1)
    return invalid_input("batch sizes, rollout.n and ppo_epochs must be at least 1");
  if (work.prompts % s.actor.mini_batch != 0)
    return invalid_input(
        cat("actor_rollout_ref.actor.ppo_mini_batch_size: ", s.actor.mini_batch,
            " must divide data.train_batch_size ", work.prompts,
            "; nearest legal values: ", nearest_divisors(work.prompts, s.actor.mini_batch)));
  work.minibatches = work.prompts / s.actor.mini_batch;
  if (work.prompts == s.gen_batch_size && work.prompts != s.train_batch_size)
    notes->push_back(cat("a step is the ", work.prompts,
                         " prompts of data.gen_batch_size, not the ", s.train_batch_size,
                         " of data.train_batch_size: nothing is filtered"));
  else if (work.prompts != s.train_batch_size)
    notes->push_back(cat("a step is the ", work.prompts, " prompts between two updates of the ",
                         "engine's weights"));
  if (s.filter_groups && !s.fully_async)
    notes->push_back(cat("algorithm.filter_groups: priced for ", generated_verl_prompts(s),
                         " generated prompts, of which ", work.prompts,
                         " train; a further batch of ",
                         s.gen_batch_size > 0 ? s.gen_batch_size : s.train_batch_size,
                         " prompts, where too few groups are left, is not"));
  return ok_status();
}

Strategy generate_strategy(const VerlSettings& s, const PlanningProblem& problem, const Call& call,
                           int64_t devices, Notes* notes) {
  const VerlEngine& engine = s.rollout;
  Strategy strategy;
  strategy.tp = static_cast<int>(engine.tp);
  strategy.pp = static_cast<int>(engine.pp);
  strategy.dp = static_cast<int>(devices / std::max<int64_t>(1, engine.tp * engine.pp));
  if (model_of(problem, call.role).spec.experts > 0 && engine.ep > 1) {
    strategy.ep = static_cast<int>(engine.ep);
    strategy.expert_tp = static_cast<int>(std::max<int64_t>(1, engine.expert_tp));
    if (expert_tp(strategy) == strategy.tp) strategy.expert_tp = 0;
  }
  strategy.max_concurrent = engine.max_num_seqs;
  const int64_t longest =
      longest_tokens(problem.workload.prompt) + longest_tokens(problem.workload.response);
  const int64_t tokens = foreign::kv_tokens_of_share(problem, call, strategy, engine.memory_share);
  if (tokens >= longest)
    strategy.kv_budget_tokens = tokens;
  else
    notes->push_back(cat("actor_rollout_ref.rollout.gpu_memory_utilization=", engine.memory_share,
                         " leaves no room for one sequence of ", longest,
                         " tokens beside the weights; planned with all free memory"));
  if (engine.quantization == "fp8" || engine.quantization == "torchao") {
    if (peak_flops(problem.cluster.nodes.front().gpu, Precision::kFp8).ok())
      strategy.precision = Precision::kFp8;
    else
      notes->push_back(
          "actor_rollout_ref.rollout.quantization: these devices have no fp8; planned "
          "in 16 bit");
  }
  return strategy;
}

// A reward model or a teacher that an engine serves: forwards only.
Strategy served_strategy(const VerlEngine& engine, const PlanningProblem& problem, const Call& call,
                         int64_t devices) {
  Strategy strategy;
  strategy.tp = static_cast<int>(engine.tp);
  strategy.dp = static_cast<int>(std::max<int64_t>(1, devices / std::max<int64_t>(1, engine.tp)));
  if (model_of(problem, call.role).spec.experts > 0 && engine.ep > 1) {
    strategy.ep = static_cast<int>(engine.ep);
    strategy.expert_tp = strategy.tp > 1 ? 1 : 0;
  }
  strategy.micro_tokens = engine.max_batched_tokens;
  return strategy;
}

bool is_served(const VerlSettings& s, const ForeignKeys& keys) {
  for (const auto& [key, value] : keys)
    if (key.rfind("reward.reward_model.", 0) == 0 || key.rfind("reward_model.rollout.", 0) == 0)
      return true;
  return s.reward_apart;
}

void add_residency(const VerlSettings& s, const PlanningProblem& problem, ExecutionPlan* plan) {
  for (const RoleSpec& spec : problem.graph.roles) {
    if (spec.role.value == "teacher") continue;  // its engines hold what they serve
    const VerlWorker& worker = worker_of(s, spec.role.value);
    const VerlLayout& layout = worker.layout();
    RolePlan role;
    role.role = spec.role;
    if (layout.offload_weights) role.weights = Residency::kHost;
    if ((layout.offload_optimizer || worker.optimizer_on_host) && spec.trained)
      role.optimizer = Residency::kHost;
    if (spec.trained) role.timing = OffloadTiming::kAfterEachCall;
    if (role.weights != Residency::kDevice || role.optimizer != Residency::kDevice)
      plan->roles.push_back(role);
  }
}

struct Import {
  const VerlSettings& s;
  const VerlPlacement& placement;
  bool served = false;
};

CallPlan call_plan_of(const Import& import, const PlanningProblem& problem, const Call& call,
                      Notes* notes) {
  const VerlSettings& s = import.s;
  const bool samples = call.kind == CallKind::kGenerate, reward = call.role.value == "reward";
  const bool teacher = call.role.value == "teacher";
  const DeviceMesh& mesh = samples   ? import.placement.rollout
                           : reward  ? import.placement.reward
                           : teacher ? import.placement.teacher
                                     : import.placement.trainer;
  const auto devices = static_cast<int64_t>(mesh.devices.size());
  if (samples) return {call.name, mesh, generate_strategy(s, problem, call, devices, notes)};
  CallPlan plan{call.name, mesh, {}};
  if (teacher)
    plan.strategy = served_strategy(s.teacher, problem, call, devices);
  else if (reward && import.served)
    plan.strategy = served_strategy(s.reward_engine, problem, call, devices);
  else
    plan.strategy = verl_worker_strategy(worker_of(s, call.role.value), problem, call, devices);
  plan.strategy.in_order = !s.balance_batch;
  return plan;
}

ExecutionPlan plan_of(const Import& import, const PlanningProblem& problem, Notes* notes) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) plan.calls.push_back(call_plan_of(import, problem, call, notes));
  add_residency(import.s, problem, &plan);
  plan.staleness = separate(import.s) ? 1 : 0;
  return plan;
}

Status check_sizes(const VerlSettings& s) {
  std::vector<std::pair<std::string, int64_t>> sizes = {
      {"rollout.tensor_model_parallel_size", s.rollout.tp},
      {"rollout.pipeline_model_parallel_size", s.rollout.pp},
      {"rollout.data_parallel_size", s.rollout.dp},
      {"rollout.expert_parallel_size", s.rollout.ep},
      {"rollout.max_num_batched_tokens", s.rollout.max_batched_tokens},
      {"data.max_prompt_length", s.max_prompt_length},
      {"data.max_response_length", s.max_response_length},
      {"rollout.prompt_length", s.prompt_length},
      {"rollout.response_length", s.response_length}};
  const std::pair<const char*, const VerlWorker*> workers[] = {
      {"actor", &s.actor}, {"ref", &s.ref}, {"critic", &s.critic}, {"reward_model", &s.reward}};
  for (const auto& [name, worker] : workers) {
    const VerlLayout& layout = worker->layout();
    sizes.emplace_back(cat(name, ".", worker->strategy, " tensor size"), layout.tp);
    sizes.emplace_back(cat(name, ".", worker->strategy, " pipeline size"), layout.pp);
    sizes.emplace_back(cat(name, ".", worker->strategy, " context size"), layout.cp);
    sizes.emplace_back(cat(name, ".", worker->strategy, " expert size"), layout.ep);
  }
  constexpr int64_t kLargest = 1 << 24;
  for (const auto& [name, value] : sizes)
    if (value < 1 || value > kLargest)
      return invalid_input(cat(name, " must be 1 to ", kLargest, ", is ", value));
  return ok_status();
}

// What one worker takes from another.
void settle(const ForeignKeys& stated, VerlSettings* s) {
  s->critic.infer_dynamic = s->critic.dynamic;
  const std::pair<VerlWorker*, const char*> trained[] = {{&s->actor, "actor_rollout_ref"},
                                                         {&s->critic, "critic"}};
  for (const auto& [worker, name] : trained) {
    const bool said = stated.count(cat(name, ".model.enable_gradient_checkpointing")) > 0;
    VerlLayout& layout = worker->layout();
    if (worker->megatron_like() && layout.granularity == "null" && said && worker->checkpointing)
      layout.granularity = "full";
  }
  for (VerlWorker* worker : {&s->actor, &s->ref, &s->critic, &s->reward})
    if (worker->ulysses > 1) worker->fsdp.cp = worker->turbo.cp = worker->ulysses;
  if (s->actor.strategy != "megatron") s->ref.ulysses = s->actor.ulysses;
  for (const auto& [key, value] : stated)
    s->fully_async |= separate(*s) && key.rfind("async_training.", 0) == 0;
  if (s->distils && s->teacher_pool.nodes == 0) s->teacher_pool.per_node = 0;
  s->response_length = std::min(s->response_length, std::max<int64_t>(s->max_response_length, 1));
  if (s->max_model_len > s->prompt_length)
    s->response_length = std::min(s->response_length, s->max_model_len - s->prompt_length);
  // The engines of a replica that share its experts.
  s->rollout.dp = std::max<int64_t>(1, s->rollout.dp);
}

std::string engine_of(const VerlWorker& actor) {
  if (actor.megatron_like()) return "megatron";
  return "";
}

void note_what_is_lost(const VerlSettings& s, Notes* notes) {
  const VerlLayout& layout = s.actor.layout();
  if (layout.vpp > 1 && (layout.first_layers > 0 || layout.last_layers > 0))
    notes->push_back(
        "layers of the first and last stage are planned evenly where stages "
        "interleave");
  if (separate(s))
    notes->push_back(
        "rollouts run beside training, one step older; planned with devices of their "
        "own, on nodes behind the trainer's");
}

// Keys that are read and say something else than what is planned.
void demote(const std::string& key, const char* why, KeyReport* report) {
  const auto found = std::find(report->read.begin(), report->read.end(), key);
  if (found == report->read.end()) return;
  report->read.erase(found);
  report->not_priced.push_back({key, why});
}

// Keys of workers that the run does not start; those that decide whether it does stay read.
void set_absent_aside(const Graph& graph, KeyReport* report) {
  struct Worker {
    const char *prefix, *role, *why;
  };
  constexpr Worker kWorkers[] = {
      {"critic.", "critic", "the run has no critic"},
      {"actor_rollout_ref.ref.", "reference", "the run has no reference model"}};
  for (const Worker& worker : kWorkers) {
    if (find_role(graph, RoleId{worker.role}) != nullptr) continue;
    std::vector<std::string> read;
    for (std::string& key : report->read)
      if (key.rfind(worker.prefix, 0) == 0 && key != "critic.enable")
        report->without_effect.push_back({std::move(key), worker.why});
      else
        read.push_back(std::move(key));
    report->read = std::move(read);
  }
}

void demote_unplanned(const VerlSettings& s, const Graph& graph, KeyReport* report) {
  set_absent_aside(graph, report);
  const char* why = "both models are updated with the actor's mini-batches and epochs";
  const bool critic = find_role(graph, RoleId{"critic"}) != nullptr;
  if (critic && s.critic.mini_batch != s.actor.mini_batch)
    demote("critic.ppo_mini_batch_size", why, report);
  if (critic && s.critic.epochs != s.actor.epochs) demote("critic.ppo_epochs", why, report);
  if (s.filter_groups)
    demote("algorithm.filter_groups.enable",
           "generation beyond the first batches that suffice is not known", report);
}

// An engine that only a variable names.
void settle_engine(ForeignKeys* keys, Notes* notes) {
  const auto found = keys->find("actor_rollout_ref.rollout.name");
  if (found == keys->end() || found->second.find('$') == std::string::npos) return;
  notes->push_back(cat(found->first, "=", found->second, " is not resolved; planned as vllm"));
  found->second = "vllm";
}

}  // namespace

Result<ImportedPlan> import_verl(const ForeignKeys& stated, const ImportOptions& options) {
  VerlSettings s;
  ImportedPlan out;
  BRAID_ASSIGN(const VerlVersion version, verl_version(stated, options.version));
  out.version = version.told;
  out.keys = foreign::account(stated, verl_knowledge());
  BRAID_ASSIGN(ForeignKeys keys, complete_verl_keys(stated, *version.generation, &out.notes));
  settle_engine(&keys, &out.notes);
  BRAID_TRY(foreign::read_settings(verl_table(), keys, &s));
  settle(keys, &s);
  BRAID_TRY(check_verl_words(s));
  BRAID_TRY(check_sizes(s));
  BRAID_ASSIGN(out.problem.graph, verl_graph(s, &out.notes));
  BRAID_ASSIGN(const VerlPlacement placement, place_verl(s, options));
  out.problem.cluster = placement.cluster;
  BRAID_TRY(add_models(s, options, &out.problem, &out.notes));
  BRAID_TRY(add_workload(s, &out.problem, &out.notes));
  BRAID_TRY(foreign::set_lengths(
      options,
      {s.prompt_length, s.response_length, "data.max_prompt_length", "data.max_response_length"},
      &out.problem, &out.notes));
  out.problem.train_engine = engine_of(s.actor);
  out.problem.generate_engine = s.rollout.name == "dynamo" ? "vllm" : s.rollout.name;
  out.problem.reserves_cache = true;
  out.problem.engine_batch_tokens = s.rollout.max_batched_tokens;
  note_what_is_lost(s, &out.notes);
  demote_unplanned(s, out.problem.graph, &out.keys);
  const auto devices = static_cast<int64_t>(placement.trainer.devices.size());
  BRAID_TRY(check_verl(out.problem, devices, &s, &out.notes));
  out.plan = plan_of({s, placement, is_served(s, keys)}, out.problem, &out.notes);
  BRAID_TRY(validate(out.plan, out.problem).at("this verl configuration"));
  return out;
}

}  // namespace braid::inline foreign

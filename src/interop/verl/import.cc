// From verl's settings to a planning problem and the plan that verl executes: every worker group on
// all devices.
#include <algorithm>

#include "base/text.h"
#include "interop/verl/verl.h"
#include "plan/make_problem.h"
#include "plan/validate.h"

namespace braid {
namespace {

using Notes = std::vector<std::string>;

struct Estimator {
  const char* verl;
  const char* ours;
};
constexpr Estimator kEstimators[] = {{"gae", "ppo"},
                                     {"grpo", "grpo"},
                                     {"rloo", "rloo"},
                                     {"remax", "remax"},
                                     {"reinforce_plus_plus", "rloo"},
                                     {"reinforce_plus_plus_baseline", "rloo"}};

Result<Graph> graph_of(const VerlSettings& s, Notes* notes) {
  AlgorithmOptions options;
  options.kl.coef = s.kl_in_reward || s.kl_loss ? 0.001 : 0;
  std::vector<std::string> names;
  for (const Estimator& entry : kEstimators) {
    names.push_back(entry.verl);
    if (s.adv_estimator == entry.verl) options.name = entry.ours;
  }
  if (std::find(names.begin(), names.end(), s.adv_estimator) == names.end())
    return invalid_input(cat("algorithm.adv_estimator: '", s.adv_estimator, "' is not known here",
                             did_you_mean(s.adv_estimator, names), "; known: ", join(names, ", ")));
  if (s.adv_estimator.rfind("reinforce", 0) == 0)
    notes->push_back(cat("algorithm.adv_estimator=", s.adv_estimator,
                         " has the calls of RLOO and is planned as that"));
  BRAID_ASSIGN(Graph graph, make_graph(options));
  return s.reward_enabled ? with_reward_model(std::move(graph)) : graph;
}

const VerlWorker& worker_of(const VerlSettings& s, const std::string& role) {
  if (role == "critic") return s.critic;
  if (role == "reward") return s.reward;
  return role == "reference" ? s.ref : s.actor;
}

Status add_models(const VerlSettings& s, const ImportOptions& options, PlanningProblem* problem,
                  Notes* notes) {
  for (const RoleSpec& spec : problem->graph.roles) {
    const std::string& role = spec.role.value;
    RoleModel model;
    const bool own = (role == "critic" || role == "reward") && !worker_of(s, role).path.empty();
    const std::string path = own ? worker_of(s, role).path : s.actor.path;
    const std::string key = !own               ? "actor_rollout_ref.model.path"
                            : role == "critic" ? "critic.model.path"
                                               : "reward_model.model.path";
    BRAID_ASSIGN(model.size, foreign::model_of_path(key, path, options, notes));
    if (role == "actor" && s.lora_rank > 0) model.trainable = {true, s.lora_rank};
    if (role == "reference" && s.lora_rank > 0) model.shares_weights_with = "actor";
    problem->models[role] = model;
  }
  return ok_status();
}

Status add_workload(const VerlSettings& s, PlanningProblem* problem) {
  Workload& work = problem->workload;
  work.prompts = s.train_batch_size;
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
  return ok_status();
}

bool megatron(const VerlWorker& worker) { return worker.strategy == "megatron"; }

// Micro-batches of a forward or of a training step, as a number or a token budget.
void set_micro_batches(const VerlWorker& worker, bool trains, int64_t each, Strategy* strategy) {
  const bool dynamic = trains ? worker.dynamic : worker.infer_dynamic;
  const int64_t tokens = trains ? worker.max_tokens : worker.infer_max_tokens;
  const int64_t size = trains ? worker.micro_batch : worker.infer_micro_batch;
  if (dynamic) {
    strategy->micro_tokens = tokens;
  } else if (size > 0) {
    strategy->micro_batches = std::max<int64_t>(1, (each + size - 1) / size);
    while (each % strategy->micro_batches != 0) ++strategy->micro_batches;
  }
}

Strategy generate_strategy(const VerlSettings& s, const PlanningProblem& problem, const Call& call,
                           int64_t devices, Notes* notes) {
  Strategy strategy;
  strategy.tp = static_cast<int>(s.gen_tp);
  strategy.dp = static_cast<int>(devices / std::max<int64_t>(1, s.gen_tp));
  strategy.max_concurrent = s.max_num_seqs;
  const int64_t longest = s.max_prompt_length + s.max_response_length;
  const int64_t tokens =
      foreign::kv_tokens_of_share(problem, call, std::max(1, strategy.tp), s.memory_share);
  if (tokens >= longest)
    strategy.kv_budget_tokens = tokens;
  else
    notes->push_back(cat("actor_rollout_ref.rollout.gpu_memory_utilization=", s.memory_share,
                         " leaves no room for one sequence of ", longest,
                         " tokens beside the weights; planned with all free memory"));
  return strategy;
}

Recompute recompute_of(const VerlWorker& worker) {
  if (!megatron(worker)) return worker.checkpointing ? Recompute::kFull : Recompute::kNone;
  if (worker.granularity == "full") return Recompute::kFull;
  return worker.granularity == "selective" ? Recompute::kSelective : Recompute::kNone;
}

Strategy worker_strategy(const VerlWorker& worker, const PlanningProblem& problem, const Call& call,
                         int64_t devices) {
  const bool trains = call.kind == CallKind::kTrainStep;
  Strategy strategy;
  if (megatron(worker)) {
    strategy.tp = static_cast<int>(worker.tp);
    strategy.pp = static_cast<int>(worker.pp);
    strategy.interleave = trains ? static_cast<int>(std::max<int64_t>(1, worker.vpp)) : 1;
    strategy.sequence_parallel = worker.tp > 1;
  }
  const int64_t sharded = std::max<int64_t>(1, int64_t{strategy.tp} * strategy.pp);
  strategy.dp = static_cast<int>(std::max<int64_t>(1, devices / sharded));
  if (strategy.dp > 1) strategy.zero_stage = !megatron(worker) ? 3 : trains ? 1 : 0;
  if (trains) strategy.recompute = recompute_of(worker);
  const int64_t samples = trains ? minibatch_samples(problem) : call_samples(problem, call);
  set_micro_batches(worker, trains, std::max<int64_t>(1, samples / strategy.dp), &strategy);
  return strategy;
}

void add_residency(const VerlSettings& s, const PlanningProblem& problem, ExecutionPlan* plan) {
  for (const RoleSpec& spec : problem.graph.roles) {
    const VerlWorker& worker = worker_of(s, spec.role.value);
    RolePlan role;
    role.role = spec.role;
    if (worker.offload_weights) role.weights = Residency::kHost;
    if (worker.offload_optimizer && spec.trained) role.optimizer = Residency::kHost;
    if (spec.trained) role.timing = OffloadTiming::kAfterEachCall;
    if (role.weights != Residency::kDevice || role.optimizer != Residency::kDevice)
      plan->roles.push_back(role);
  }
}

void note_what_is_lost(const VerlSettings& s, Notes* notes) {
  if (s.actor.sequence_parallel > 1)
    notes->push_back(cat("ulysses_sequence_parallel_size=", s.actor.sequence_parallel,
                         " is planned as data parallelism"));
  if (s.actor.shard_size > 0)
    notes->push_back(cat("fsdp_size=", s.actor.shard_size, " is planned as full sharding"));
}

ExecutionPlan plan_of(const VerlSettings& s, const PlanningProblem& problem, Notes* notes) {
  ExecutionPlan plan = plan_for(problem);
  const DeviceMesh all = whole_cluster(problem.cluster);
  const auto devices = static_cast<int64_t>(all.devices.size());
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    const VerlWorker& worker = worker_of(s, call.role.value);
    const bool samples = call.kind == CallKind::kGenerate;
    plan.calls.push_back({call.name, all,
                          samples ? generate_strategy(s, problem, call, devices, notes)
                                  : worker_strategy(worker, problem, call, devices)});
    plan.calls.back().strategy.in_order = !samples && !s.balance_batch;
  }
  add_residency(s, problem, &plan);
  return plan;
}

Status check_sizes(const VerlSettings& s) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"rollout.tensor_model_parallel_size", s.gen_tp},
      {"actor.megatron tensor size", s.actor.tp},
      {"actor.megatron pipeline size", s.actor.pp},
      {"critic.megatron tensor size", s.critic.tp},
      {"critic.megatron pipeline size", s.critic.pp},
      {"ref.megatron tensor size", s.ref.tp},
      {"ref.megatron pipeline size", s.ref.pp},
      {"data.max_prompt_length", s.max_prompt_length},
      {"data.max_response_length", s.max_response_length}};
  constexpr int64_t kLargest = 1 << 24;
  for (const auto& [name, value] : sizes)
    if (value < 1 || value > kLargest)
      return invalid_input(cat(name, " must be 1 to ", kLargest, ", is ", value));
  return ok_status();
}

// What one worker takes from another, and of the two backends' keys those of the backend in use.
void settle(const ForeignKeys& keys, VerlSettings* s) {
  s->ref.strategy = s->actor.strategy;
  s->critic.infer_dynamic = s->critic.dynamic;
  const std::pair<VerlWorker*, const char*> trained[] = {{&s->actor, "actor_rollout_ref.actor"},
                                                         {&s->critic, "critic"}};
  for (const auto& [worker, name] : trained) {
    const bool actor = worker == &s->actor;
    const bool stated = keys.count(cat(actor ? "actor_rollout_ref" : "critic",
                                       ".model.enable_gradient_checkpointing")) > 0;
    const char* granularity = ".megatron.override_transformer_config.recompute_granularity";
    if (keys.count(cat(name, granularity)) == 0 && stated && worker->checkpointing)
      worker->granularity = "full";
  }
  for (VerlWorker* worker : {&s->actor, &s->ref, &s->critic, &s->reward}) {
    if (!megatron(*worker)) continue;
    worker->offload_weights = worker->mcore_offload_weights;
    worker->offload_optimizer = worker->mcore_offload_optimizer;
  }
}

}  // namespace

Result<ImportedPlan> import_verl(const ForeignKeys& stated, const ImportOptions& options) {
  VerlSettings s;
  ImportedPlan out;
  BRAID_ASSIGN(const ForeignKeys keys, complete_verl_keys(stated, &out.notes));
  BRAID_TRY(foreign::read_settings(verl_table(), keys, &s, &out.notes));
  settle(keys, &s);
  BRAID_TRY(check_sizes(s));
  BRAID_ASSIGN(out.problem.graph, graph_of(s, &out.notes));
  BRAID_ASSIGN(out.problem.cluster,
               foreign::imported_cluster(options, s.nnodes, s.n_gpus_per_node));
  BRAID_TRY(add_models(s, options, &out.problem, &out.notes));
  BRAID_TRY(add_workload(s, &out.problem));
  BRAID_TRY(foreign::set_lengths(options,
                                 {s.max_prompt_length, s.max_response_length,
                                  "data.max_prompt_length", "data.max_response_length"},
                                 &out.problem, &out.notes));
  out.problem.train_engine = megatron(s.actor) ? "megatron" : "";
  out.problem.generate_engine = s.engine;
  out.problem.reserves_cache = true;
  note_what_is_lost(s, &out.notes);
  note_unplanned_verl(keys, &out.notes);
  BRAID_TRY(check_verl(out.problem, &s, &out.notes));
  out.plan = plan_of(s, out.problem, &out.notes);
  BRAID_TRY(validate(out.plan, out.problem).at("this verl configuration"));
  return out;
}

}  // namespace braid

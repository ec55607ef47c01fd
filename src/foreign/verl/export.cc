// From a plan to the nearest configuration of verl.
#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"
#include "base/text.h"
#include "foreign/verl/verl.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

struct Exporter {
  const PlanningProblem& problem;
  const ExecutionPlan& plan;
  VerlSettings s;
  std::vector<std::string> lost;

  const Strategy* strategy(const std::string& role, CallKind kind) const {
    const Call* call = foreign::call_of(problem.graph, role, kind);
    return call == nullptr ? nullptr : &call_plan(plan, call->name).strategy;
  }
  void lose(const std::string& what) { lost.push_back(what); }
};

void export_micro_batches(const Strategy& from, int64_t samples, int64_t* size, bool* dynamic,
                          int64_t* tokens) {
  *dynamic = from.micro_tokens > 0;
  if (*dynamic)
    *tokens = from.micro_tokens;
  else
    *size = ceil_div(samples / from.dp, from.micro_batches);
}

void export_layout(const Strategy& from, VerlLayout* to) {
  to->tp = from.tp, to->pp = from.pp, to->cp = from.cp, to->ep = from.ep;
  to->expert_tp = from.expert_tp;
  if (from.zero_ranks > 0) to->shards = from.zero_ranks;
  if (from.zero_stage == 2) to->reshard = false;
  if (from.precision == Precision::kFp8) to->fp8 = "hybrid";
}

void export_training(Exporter& e, const std::string& role, VerlWorker* worker) {
  const Strategy* from = e.strategy(role, CallKind::kTrainStep);
  if (from == nullptr) return;
  const bool experts = from->ep > 1 && from->zero_stage < 2;
  const bool parallel = from->tp > 1 || from->pp > 1 || experts;
  worker->strategy = parallel ? "megatron" : "fsdp";
  export_layout(*from, &worker->layout());
  if (parallel) {
    worker->layout().vpp = from->interleave > 1 ? from->interleave : 0;
    if (from->schedule == PipelineOrder::kAllForwardFirst)
      e.lose(cat("update of ", role, ": schedule gpipe; its pipelines run 1F1B"));
    if (from->zero_stage > 1)
      e.lose(cat("update of ", role, ": zero ", from->zero_stage,
                 " beside tensor or pipeline parallelism; it has zero 1"));
    if ((from->tp > 1) != from->sequence_parallel)
      e.lose(cat("update of ", role, ": sequence_parallel is always on with tp"));
  } else if (from->dp > 1 && from->zero_stage != 3) {
    e.lose(cat("update of ", role, ": zero ", from->zero_stage, "; FSDP shards all (zero 3)"));
  }
  if (parallel)
    worker->megatron.granularity = from->recompute == Recompute::kNone   ? "null"
                                   : from->recompute == Recompute::kFull ? "full"
                                                                         : "selective";
  else
    worker->checkpointing = from->recompute != Recompute::kNone;
  if (from->in_order) e.s.balance_batch = false;
  if (from->recompute == Recompute::kSelective && !parallel)
    e.lose(cat("update of ", role, ": selective recomputation; it recomputes whole layers"));
  export_micro_batches(*from, minibatch_samples(e.problem), &worker->micro_batch, &worker->dynamic,
                       &worker->max_tokens);
  // All devices share a mini-batch, whose sequences per device the size must divide.
  const int64_t ranks = std::max<int64_t>(
      1, device_count(e.problem.cluster) / (int64_t{from->tp} * from->pp * from->cp));
  if (!worker->dynamic)
    worker->micro_batch =
        std::gcd(worker->micro_batch, std::max<int64_t>(1, minibatch_samples(e.problem) / ranks));
}

void export_inference(Exporter& e, const std::string& role, const VerlWorker& layout,
                      VerlWorker* worker) {
  const CallKind kind = role == "reward" ? CallKind::kReward : CallKind::kInfer;
  const Call* call = foreign::call_of(e.problem.graph, role, kind);
  if (call == nullptr) return;
  const Strategy& from = call_plan(e.plan, call->name).strategy;
  const bool own_layout = role == "reference" || role == "reward";
  if (role == "reward" && from.tp * from.pp > 1) worker->strategy = "megatron";
  if (role == "reference") worker->strategy = layout.strategy;
  if (own_layout) export_layout(from, &worker->layout());
  const VerlLayout& trained = layout.layout();
  const bool same = from.tp == trained.tp && from.pp == trained.pp && from.cp == trained.cp;
  if (!same && !own_layout)
    e.lose(
        cat(call->name, ": tp", from.tp, " pp", from.pp, "; inference has the layout of training"));
  export_micro_batches(from, call_samples(e.problem, *call), &worker->infer_micro_batch,
                       &worker->infer_dynamic, &worker->infer_max_tokens);
}

void export_generation(Exporter& e) {
  const Call* call = foreign::call_of(e.problem.graph, "actor", CallKind::kGenerate);
  if (call == nullptr) return e.lose("a graph without generation");
  const Strategy& from = call_plan(e.plan, call->name).strategy;
  e.s.rollout.tp = from.tp, e.s.rollout.ep = from.ep, e.s.rollout.expert_tp = from.expert_tp;
  if (from.precision == Precision::kFp8) e.s.rollout.quantization = "fp8";
  if (from.pp > 1)
    e.lose(cat(call->name, ": pp ", from.pp, "; engines have tensor parallelism only"));
  if (from.max_concurrent > 0) e.s.rollout.max_num_seqs = from.max_concurrent;
  if (from.kv_budget_tokens > 0)
    e.s.rollout.memory_share =
        foreign::share_of_kv_tokens(e.problem, *call, from, from.kv_budget_tokens);
}

void export_role(Exporter& e, const std::string& role, VerlWorker* worker) {
  const RolePlan from = role_plan(e.plan, RoleId{role});
  if (role == "reference") worker->strategy = e.s.actor.strategy;
  worker->layout().offload_weights = from.weights == Residency::kHost;
  worker->layout().offload_optimizer = from.optimizer == Residency::kHost;
  if (from.prefetch) e.lose(cat("role ", role, ": prefetch from the host"));
  const auto found = e.problem.models.find(role);
  if (found != e.problem.models.end()) worker->path = found->second.spec.name;
}

void export_workload(Exporter& e) {
  const Workload& work = e.problem.workload;
  e.s.train_batch_size = work.prompts;
  e.s.samples = work.samples_per_prompt;
  e.s.actor.mini_batch = std::max<int64_t>(1, work.prompts / work.minibatches);
  e.s.actor.epochs = work.epochs;
  e.s.max_prompt_length = allowed_prompt_tokens(work);
  e.s.max_response_length = allowed_response_tokens(work);
  e.s.prompt_length = e.s.max_prompt_length, e.s.response_length = e.s.max_response_length;
}

// An algorithm as verl says it, and what of it verl says by keys that no plan reads.
struct ExportedAlgorithm {
  const char* name;
  const char* estimator;
  const char* loss_mode = "vanilla";
  bool filters = false;
  const char* beside = "";
};
constexpr ExportedAlgorithm kAlgorithms[] = {
    {"ppo", "gae"},
    {"grpo", "grpo"},
    {"dapo", "grpo", "vanilla", true},
    {"dr_grpo", "grpo", "vanilla", false,
     "algorithm.norm_adv_by_std_in_grpo=False and "
     "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"},
    {"gspo", "grpo", "gspo"},
    {"cispo", "grpo", "cispo"},
    {"rloo", "rloo"},
    {"remax", "remax"},
    {"reinforce_plus_plus", "reinforce_plus_plus"},
    {"reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline"},
};

void export_estimator(Exporter& e) {
  const std::string& name = e.problem.graph.name;
  e.s.adv_estimator = name;
  for (const ExportedAlgorithm& entry : kAlgorithms) {
    if (name != entry.name) continue;
    e.s.adv_estimator = entry.estimator, e.s.loss_mode = entry.loss_mode;
    e.s.filter_groups = entry.filters;
    if (*entry.beside != '\0') e.lose(cat(name, ": it needs ", entry.beside, " too"));
    return;
  }
  e.lose(cat("graph ", name));
}

// Whether advantages, or else the policy's loss, take the penalty.
bool penalizes_rewards(const Graph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kCompute &&
           std::find(call.reads.begin(), call.reads.end(), "ref_logprobs") != call.reads.end();
  });
}

void export_algorithm(Exporter& e) {
  export_estimator(e);
  if (changes(e.problem.graph, RoleId{"reference"})) e.lose("reference.sync_every");
  if (find_role(e.problem.graph, RoleId{"critic"}) == nullptr && has_values(e.problem.graph))
    e.lose("critic.shared_trunk");
  const bool penalty = find_role(e.problem.graph, RoleId{"reference"}) != nullptr;
  e.s.kl_in_reward = penalty && penalizes_rewards(e.problem.graph);
  e.s.kl_loss = penalty && !e.s.kl_in_reward;
  e.s.reward_enabled = find_role(e.problem.graph, RoleId{"reward"}) != nullptr;
  if (const auto actor = e.problem.models.find("actor");
      actor != e.problem.models.end() && actor->second.trainable.lora)
    e.s.lora_rank = actor->second.trainable.lora_rank;
}

void export_cluster(Exporter& e) {
  const auto& nodes = e.problem.cluster.nodes;
  e.s.trainer.nodes = static_cast<int64_t>(nodes.size());
  e.s.trainer.per_node = nodes.front().devices;
  for (const Node& node : nodes)
    e.s.trainer.per_node = std::min<int64_t>(e.s.trainer.per_node, node.devices);
  for (const Node& node : nodes)
    if (!(node.gpu == nodes.front().gpu) || node.devices != nodes.front().devices)
      return e.lose("nodes that differ; trainer.n_gpus_per_node is one number");
}

void export_meshes(Exporter& e) {
  const DeviceMesh all = whole_cluster(e.problem.cluster);
  for (const CallPlan& call : e.plan.calls)
    if (!(call.mesh == all))
      e.lose(cat(call.call, ": mesh ", mesh_text(call.mesh), "; every worker runs on all devices"));
  if (e.plan.fusion != Fusion{}) e.lose("fusion");
  if (e.plan.staleness != 0) e.lose(cat("staleness ", e.plan.staleness));
}

}  // namespace

ExportedConfig export_verl(const PlanningProblem& problem, const ExecutionPlan& plan) {
  Exporter e{problem, plan, {}, {}};
  if (!problem.generate_engine.empty()) e.s.rollout.name = problem.generate_engine;
  e.s.rollout.max_batched_tokens = engine_batch_tokens(problem, e.s.rollout.max_batched_tokens);
  export_workload(e);
  export_algorithm(e);
  export_cluster(e);
  export_meshes(e);
  export_training(e, "actor", &e.s.actor);
  export_training(e, "critic", &e.s.critic);
  export_inference(e, "actor", e.s.actor, &e.s.actor);
  export_inference(e, "reference", e.s.actor, &e.s.ref);
  export_inference(e, "critic", e.s.critic, &e.s.critic);
  export_inference(e, "reward", VerlWorker(), &e.s.reward);
  export_role(e, "actor", &e.s.actor);
  export_role(e, "reference", &e.s.ref);
  export_role(e, "critic", &e.s.critic);
  export_role(e, "reward", &e.s.reward);
  if (e.s.critic.infer_dynamic != e.s.critic.dynamic && e.strategy("critic", CallKind::kInfer))
    e.lose("values and update_critic: one by tokens, the other by number of micro-batches");
  export_generation(e);
  return {print_verl(e.s), e.lost};
}

}  // namespace braid::inline foreign

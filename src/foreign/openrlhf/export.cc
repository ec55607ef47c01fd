// From a plan to the nearest arguments of OpenRLHF.
#include <algorithm>

#include "base/text.h"
#include "foreign/openrlhf/openrlhf.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using S = OpenRlhfSettings;

struct Exporter {
  const PlanningProblem& problem;
  const ExecutionPlan& plan;
  S s;
  std::vector<std::string> lost;

  const CallPlan* entry(const std::string& role, CallKind kind) const {
    const Call* call = foreign::call_of(problem.graph, role, kind);
    return call == nullptr ? nullptr : &call_plan(plan, call->name);
  }
  void lose(const std::string& what) { lost.push_back(what); }
};

void export_group(Exporter& e, const CallPlan* from, OpenRlhfGroup* group) {
  if (from == nullptr) return;
  const int64_t devices = static_cast<int64_t>(from->mesh.devices.size());
  const int64_t node = e.problem.cluster.nodes.front().devices;
  group->per_node = std::min(devices, node);
  group->nodes = devices / group->per_node;
  if (group->nodes * group->per_node != devices)
    e.lose(cat(from->call, ": ", devices, " devices are no whole nodes of ", node));
}

void export_training(Exporter& e, const std::string& role, bool first) {
  const CallPlan* from = e.entry(role, CallKind::kTrainStep);
  if (from == nullptr) return;
  const Strategy& t = from->strategy;
  S& s = e.s;
  const int64_t size = minibatch_samples(e.problem) / t.dp / t.micro_batches;
  const bool differs =
      !first && (s.zero_stage != t.zero_stage || s.ds_tp != t.tp || s.micro_train != size ||
                 s.checkpointing != (t.recompute != Recompute::kNone));
  if (differs)
    e.lose(cat(from->call, ": ", strategy_text(t),
               "; actor and critic share zero_stage, "
               "micro_train_batch_size and gradient_checkpointing"));
  if (t.pp > 1) e.lose(cat(from->call, ": pp ", t.pp, "; it has no pipeline parallelism"));
  if (t.recompute == Recompute::kSelective)
    e.lose(cat(from->call, ": selective recomputation; it recomputes whole layers"));
  if (!first) return;
  s.zero_stage = t.zero_stage, s.ds_tp = t.tp, s.micro_train = std::max<int64_t>(1, size);
  s.ring_attention = t.cp, s.zpg = t.zero_ranks > 0 ? t.zero_ranks : 1;
  s.dynamic = t.micro_tokens > 0;
  if (s.dynamic) s.train_tokens = std::max<int64_t>(1, t.micro_tokens / t.cp);
  s.checkpointing = t.recompute != Recompute::kNone;
}

void export_inference(Exporter& e) {
  bool first = true;
  for (const Call& call : e.problem.graph.calls) {
    const bool infers =
        call.kind == CallKind::kInfer || (call.kind == CallKind::kReward && uses_model(call));
    if (!infers) continue;
    const CallPlan& from = call_plan(e.plan, call.name);
    const int64_t size = std::max<int64_t>(
        1, call_samples(e.problem, call) / from.strategy.dp / from.strategy.micro_batches);
    if (!first && size != e.s.micro_rollout)
      e.lose(
          cat(call.name, ": micro-batches of ", size, "; micro_rollout_batch_size is one number"));
    if (first) e.s.micro_rollout = size;
    first = false;
    if ((from.strategy.micro_tokens > 0) != e.s.dynamic)
      e.lose(cat(call.name, ": micro-batches by ", e.s.dynamic ? "number" : "tokens",
                 "; training and inference cut alike"));
    else if (e.s.dynamic)
      e.s.rollout_tokens = std::max<int64_t>(1, from.strategy.micro_tokens / from.strategy.cp);
    if (from.strategy.pp > 1 || from.strategy.tp != e.s.ds_tp)
      e.lose(cat(call.name, ": ", strategy_text(from.strategy),
                 "; models keep their training layout"));
    const CallPlan* train = e.entry(call.role.value, CallKind::kTrainStep);
    if (train != nullptr && !(train->mesh == from.mesh))
      e.lose(cat(call.name, ": mesh ", mesh_text(from.mesh), "; it runs where ", train->call,
                 " does"));
  }
}

void export_generation(Exporter& e) {
  const CallPlan* from = e.entry("actor", CallKind::kGenerate);
  if (from == nullptr) return e.lose("a graph without generation");
  const Strategy& g = from->strategy;
  e.s.vllm_engines = g.dp, e.s.vllm_tp = g.tp;
  if (g.pp > 1) e.lose(cat(from->call, ": pp ", g.pp, "; engines have tensor parallelism only"));
  if (g.max_concurrent > 0)
    e.lose(cat(from->call, ": max_concurrent ", g.max_concurrent, "; vLLM's default stays"));
  const Call* call = foreign::call_of(e.problem.graph, "actor", CallKind::kGenerate);
  if (g.kv_budget_tokens > 0)
    e.s.vllm_memory = foreign::share_of_kv_tokens(e.problem, *call, g, g.kv_budget_tokens);
}

// Whether two groups have the same devices; overlap without that is not expressed.
bool together(Exporter& e, const CallPlan* a, const CallPlan* b) {
  if (a == nullptr || b == nullptr) return false;
  if (a->mesh == b->mesh) return true;
  if (overlaps(a->mesh, b->mesh))
    e.lose(cat(a->call, " and ", b->call, ": meshes ", mesh_text(a->mesh), " and ",
               mesh_text(b->mesh), " overlap in part"));
  return false;
}

void export_meshes(Exporter& e) {
  const CallPlan* actor = e.entry("actor", CallKind::kTrainStep);
  const CallPlan* ref = e.entry("reference", CallKind::kInfer);
  const CallPlan* critic = e.entry("critic", CallKind::kTrainStep);
  const CallPlan* reward = e.entry("reward", CallKind::kReward);
  const CallPlan* engines = e.entry("actor", CallKind::kGenerate);
  export_group(e, actor, &e.s.actor);
  export_group(e, ref, &e.s.ref);
  export_group(e, critic, &e.s.critic);
  export_group(e, reward, &e.s.reward);
  e.s.colocate_actor_ref = together(e, actor, ref);
  e.s.colocate_critic_reward = together(e, critic, reward);
  const bool shares_engines = together(e, actor, engines);
  e.s.colocate_all = shares_engines && (ref == nullptr || e.s.colocate_actor_ref) &&
                     (critic == nullptr || together(e, actor, critic)) &&
                     (reward == nullptr || together(e, actor, reward));
  if (shares_engines && !e.s.colocate_all)
    e.lose("generation on the actor's devices while other models have their own");
  if (e.plan.fusion != Fusion{}) e.lose("fusion");
}

void export_residency(Exporter& e) {
  const auto on_host = [&](const char* role) {
    return role_plan(e.plan, RoleId{role}).weights == Residency::kHost;
  };
  e.s.ref_offload = on_host("reference"), e.s.reward_offload = on_host("reward");
  e.s.deepspeed_sleep = on_host("actor");
  e.s.adam_offload =
      !e.s.deepspeed_sleep && role_plan(e.plan, RoleId{"actor"}).optimizer == Residency::kHost;
  for (const RolePlan& role : e.plan.roles)
    if (role.prefetch) e.lose(cat("role ", role.role, ": prefetch from the host"));
}

void export_workload(Exporter& e) {
  const Workload& work = e.problem.workload;
  S& s = e.s;
  s.rollout_batch = work.prompts;
  s.samples = work.samples_per_prompt;
  s.train_batch = minibatch_samples(e.problem);
  s.max_epochs = work.epochs;
  s.prompt_max = allowed_prompt_tokens(work);
  s.generate_max = allowed_response_tokens(work);
  s.max_len = s.prompt_max + s.generate_max;
  const bool uneven = work.response.kind != LengthDistribution::Kind::kFixed;
  const bool balances =
      std::any_of(e.plan.calls.begin(), e.plan.calls.end(), [&](const CallPlan& entry) {
        const Call* call = find_call(e.problem.graph, entry.call);
        return call != nullptr && call->kind != CallKind::kGenerate && entry.strategy.dp > 1 &&
               !entry.strategy.in_order;
      });
  if (uneven && balances) e.lose("tokens balanced over data-parallel ranks; it cuts by number");
  s.async_train = e.plan.staleness > 0;
  if (e.plan.staleness > 1)
    e.lose(cat("staleness ", e.plan.staleness, "; async_train is one step"));
}

void export_estimator(Exporter& e) {
  const std::string& name = e.problem.graph.name;
  e.s.estimator = name;
  for (const OpenRlhfEstimator& entry : kOpenRlhfEstimators)
    if (name == entry.ours) {
      e.s.estimator = entry.theirs;
      return;
    }
  e.lose(cat("graph ", name));
}

void export_models(Exporter& e) {
  const auto name_of = [&](const char* role) {
    const auto found = e.problem.models.find(role);
    return found == e.problem.models.end() ? std::string() : found->second.spec.name;
  };
  export_estimator(e);
  if (changes(e.problem.graph, RoleId{"reference"})) e.lose("reference.sync_every");
  if (find_role(e.problem.graph, RoleId{"critic"}) == nullptr && has_values(e.problem.graph))
    e.lose("critic.shared_trunk");
  if (find_role(e.problem.graph, RoleId{"reference"}) == nullptr) e.s.init_kl_coef = 0;
  e.s.pretrain = name_of("actor");
  e.s.reward_pretrain = name_of("reward");
  e.s.critic_pretrain = name_of("critic");
  if (const auto actor = e.problem.models.find("actor"); actor != e.problem.models.end())
    e.s.lora_rank = actor->second.trainable.lora ? actor->second.trainable.lora_rank : 0;
}

int64_t smallest_node(const Cluster& cluster) {
  int64_t least = cluster.nodes.front().devices;
  for (const Node& node : cluster.nodes) least = std::min<int64_t>(least, node.devices);
  return least;
}

// The most devices of one group that all layouts and mini-batches divide into; 0 if none.
int64_t shared_devices(const Exporter& e) {
  const int64_t node = smallest_node(e.problem.cluster), samples = minibatch_samples(e.problem);
  const auto nodes = static_cast<int64_t>(e.problem.cluster.nodes.size());
  for (int64_t devices = node * nodes; devices > 0; --devices) {
    const bool whole = devices <= node || devices % node == 0;
    const bool cuts = devices % e.s.vllm_tp == 0 && devices % e.s.ds_tp == 0;
    if (whole && cuts && samples % (devices / e.s.ds_tp) == 0) return devices;
  }
  return 0;
}

// All models and engines on one group, which always fits into the cluster.
void share_devices(Exporter& e) {
  S& s = e.s;
  if (shared_devices(e) == 0) {
    e.lose("tensor parallelism, which does not divide the devices of the cluster");
    s.vllm_tp = s.ds_tp = 1;
  }
  const int64_t devices = shared_devices(e), node = smallest_node(e.problem.cluster);
  const OpenRlhfGroup group = {std::max<int64_t>(1, devices / node), std::min(devices, node)};
  s.actor = s.ref = s.critic = s.reward = group;
  s.colocate_all = true;
  s.colocate_actor_ref = s.colocate_critic_reward = false;
  s.vllm_engines = devices / s.vllm_tp;
}

// Groups that the plan lets share devices in part would each get their own.
void fit_cluster(Exporter& e) {
  const int64_t needed = openrlhf_devices(e.s), all = device_count(e.problem.cluster);
  const bool engines_differ =
      e.s.colocate_all && e.s.vllm_engines * e.s.vllm_tp != e.s.actor.nodes * e.s.actor.per_node;
  if (needed <= all && !engines_differ) return;
  share_devices(e);
  const int64_t devices = e.s.actor.nodes * e.s.actor.per_node;
  for (const CallPlan& call : e.plan.calls)
    if (static_cast<int64_t>(call.mesh.devices.size()) != devices)
      e.lose(cat(call.call, ": mesh ", mesh_text(call.mesh), "; with groups of their own ", needed,
                 " devices of ", all, " would be needed, so all models share ", devices));
  if (engines_differ)
    e.lose(cat("engines of a layout that leaves devices idle; ", e.s.vllm_engines,
               " engines share all ", devices));
}

// Every flag, as written since 0.10.2, whose value differs from the default; lengths always.
std::vector<std::pair<std::string, std::string>> print_newer(S s) {
  S neutral;
  neutral.micro_train = neutral.micro_rollout = 1;
  neutral.generate_max = neutral.max_len = 0;
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : foreign::print_settings(openrlhf_table(), s, neutral))
    if (is_newer_openrlhf_key(key)) out.emplace_back(key, value);
  return out;
}

}  // namespace

ExportedConfig export_openrlhf(const PlanningProblem& problem, const ExecutionPlan& plan) {
  Exporter e{problem, plan, {}, {}};
  export_workload(e);
  export_models(e);
  export_meshes(e);
  export_training(e, "actor", true);
  export_training(e, "critic", false);
  export_inference(e);
  export_generation(e);
  fit_cluster(e);
  export_residency(e);
  return {print_newer(e.s), e.lost};
}

}  // namespace braid::inline foreign

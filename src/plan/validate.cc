#include "plan/validate.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <set>

#include "base/text.h"
#include "batching/cache_pages.h"
#include "cluster/mesh_shape.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

// What the rules of one call look at.
struct CallView {
  const Call& call;
  const CallPlan& plan;
  const PlanningProblem& problem;
  const Strategy& s() const { return plan.strategy; }
  bool trains() const { return call.kind == CallKind::kTrainStep; }
  bool generates() const { return call.kind == CallKind::kGenerate; }
  const ModelSize& size() const { return model_of(problem, call.role).spec; }
};

constexpr int kLargestSize = 1 << 20;

// Stops at a number that no cluster has.
int64_t product_of(std::initializer_list<int64_t> sizes) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t product = 1;
  for (const int64_t size : sizes) product = std::min(kMost, product * size);
  return product;
}

Status at_least_one(const CallView& view) {
  const std::pair<const char*, int64_t> fields[] = {{"dp", view.s().dp},
                                                    {"tp", view.s().tp},
                                                    {"pp", view.s().pp},
                                                    {"cp", view.s().cp},
                                                    {"ep", view.s().ep},
                                                    {"interleave", view.s().interleave},
                                                    {"micro_batches", view.s().micro_batches}};
  for (const auto& [name, value] : fields)
    if (value < 1)
      return invalid_input(
          cat(name, " must be at least 1, is ", value, "; nearest legal value: 1"));
  for (const int size : {view.s().dp, view.s().tp, view.s().pp, view.s().cp, view.s().ep,
                         view.s().expert_tp, view.s().zero_ranks, view.s().interleave})
    if (size > kLargestSize)
      return invalid_input(cat("sizes of a strategy must be at most ", kLargestSize, ", one is ",
                               size, "; nearest legal value: ", kLargestSize));
  const std::pair<const char*, int64_t> budgets[] = {
      {"expert_tp", view.s().expert_tp},
      {"zero_ranks", view.s().zero_ranks},
      {"micro_tokens", view.s().micro_tokens},
      {"kv_budget_tokens", view.s().kv_budget_tokens},
      {"max_concurrent", view.s().max_concurrent}};
  for (const auto& [name, value] : budgets)
    if (value < 0)
      return invalid_input(cat(name, " must not be negative, is ", value, "; 0 = none of its own"));
  return ok_status();
}

// The sizes that would make dp * cp * tp * pp the number of devices, changing one of them.
std::string size_remedies(const Strategy& s, int64_t devices) {
  std::vector<std::string> remedies;
  const auto add = [&](const char* name, int64_t others) {
    if (devices % others == 0) remedies.push_back(cat(name, " ", devices / others));
  };
  add("dp", product_of({s.cp, s.tp, s.pp}));
  add("tp", product_of({s.dp, s.cp, s.pp}));
  add("pp", product_of({s.dp, s.cp, s.tp}));
  if (s.cp > 1) add("cp", product_of({s.dp, s.tp, s.pp}));
  if (!remedies.empty()) return cat("nearest legal value: ", join(remedies, " or "));
  return cat("choose sizes among the divisors of ", devices);
}

Status check_product(const CallView& view) {
  const Strategy& s = view.s();
  const int64_t devices = static_cast<int64_t>(view.plan.mesh.devices.size());
  const int64_t product = product_of({s.dp, s.cp, s.tp, s.pp});
  if (product == devices) return ok_status();
  const bool cp = s.cp > 1;
  return invalid_input(cat(cp ? "dp x cp x tp x pp = " : "dp x tp x pp = ", s.dp,
                           cp ? cat(" x ", s.cp) : "", " x ", s.tp, " x ", s.pp, " = ", product,
                           " must equal the ", devices, " devices of mesh ",
                           mesh_text(view.plan.mesh), "; ", size_remedies(s, devices)));
}

Status check_tensor_parallel(const CallView& view) {
  const int64_t tp = view.s().tp, heads = view.size().heads, kv = view.size().kv_heads;
  if (heads % tp != 0)
    return invalid_input(cat("tp ", tp, " must divide the ", heads, " attention heads of ",
                             view.call.role,
                             "; nearest legal values: ", nearest_divisors(heads, tp)));
  const bool latent = view.size().mla.has_value();
  if (!latent && kv % tp != 0 && tp % kv != 0)
    return invalid_input(
        cat("tp ", tp, " must divide the ", kv, " key-value heads of ", view.call.role,
            " or be a multiple of them; nearest legal values: ", nearest_divisors(kv, tp)));
  if (view.s().sequence_parallel && tp == 1)
    return invalid_input(
        "sequence_parallel needs tp above 1; set sequence_parallel: false or tp 2");
  if (view.s().sequence_parallel && view.generates())
    return invalid_input("sequence_parallel is not for generation; set sequence_parallel: false");
  if (view.s().in_order && view.generates())
    return invalid_input("in_order is for training and inference; set in_order: false");
  return ok_status();
}

// A stated division of the layers must be one.
Status check_stage_layers(const Strategy& s, int64_t layers) {
  if (s.stage_layers.empty()) return ok_status();
  const int64_t parts = int64_t{s.pp} * s.interleave;
  const int64_t sum = std::accumulate(s.stage_layers.begin(), s.stage_layers.end(), int64_t{0});
  if (static_cast<int64_t>(s.stage_layers.size()) == parts && sum == layers) return ok_status();
  return invalid_input(cat("stage_layers must name the layers of each of the ", parts, " parts, ",
                           layers, " together; it names ", s.stage_layers.size(), " with ", sum,
                           "; leave it out for even stages"));
}

Status check_schedule(const CallView& view) {
  const Strategy& s = view.s();
  if (s.schedule == PipelineOrder::kOneForwardOneBackward) return ok_status();
  if (!view.trains())
    return invalid_input("schedule gpipe is for training; nearest legal value: 1f1b");
  if (s.pp == 1) return invalid_input("schedule gpipe needs pp above 1; nearest legal value: 1f1b");
  if (s.interleave == 1) return ok_status();
  return invalid_input(
      cat("interleave ", s.interleave, " needs schedule 1f1b; leave one of the two out"));
}

Status check_pipeline(const CallView& view) {
  const Strategy& s = view.s();
  const int64_t layers = view.size().layers, chunks = int64_t{s.pp} * s.interleave;
  if (s.pp > layers)
    return invalid_input(cat("pp ", s.pp, " exceeds the ", layers, " layers of ", view.call.role,
                             "; nearest legal value: ", layers));
  BRAID_TRY(check_stage_layers(s, layers));
  BRAID_TRY(check_schedule(view));
  if (s.interleave == 1) return ok_status();
  if (!view.trains())
    return invalid_input("interleave is for training only; nearest legal value: 1");
  if (s.pp == 1) return invalid_input("interleave needs pp above 1; nearest legal value: 1");
  if (chunks > layers)
    return invalid_input(cat("pp x interleave = ", chunks, " exceeds the ", layers, " layers of ",
                             view.call.role, "; nearest legal interleave: ", layers / s.pp));
  if (s.micro_tokens == 0 && s.micro_batches % s.pp != 0)
    return invalid_input(cat("interleaving needs micro_batches in multiples of pp ", s.pp, ", is ",
                             s.micro_batches,
                             "; nearest legal value: ", (s.micro_batches / s.pp + 1) * s.pp));
  return ok_status();
}

Status check_zero(const CallView& view) {
  const int zero = view.s().zero_stage;
  if (zero < 0 || zero > 3)
    return invalid_input(
        cat("zero must be 0 to 3, is ", zero, "; nearest legal value: ", zero < 0 ? 0 : 3));
  if (zero == 0 && view.s().zero_ranks > 0)
    return invalid_input(
        cat("zero_ranks ", view.s().zero_ranks, " needs zero above 0; nearest legal value: 0"));
  if (zero == 0) return ok_status();
  if (view.generates())
    return invalid_input("generation keeps its weights whole; nearest legal zero: 0");
  if (!view.trains() && zero != 3)
    return invalid_input(cat("zero ", zero,
                             " shards gradients or optimizer state, which inference does not have; "
                             "nearest legal values: 0 and 3"));
  if (dense_copies(view.s()) == 1)
    return invalid_input(
        cat("zero ", zero, " shards over data-parallel ranks, and dp is 1; nearest legal zero: 0"));
  const int copies = dense_copies(view.s()), ranks = zero_ranks(view.s());
  if (copies % ranks != 0 || ranks == 1)
    return invalid_input(cat("zero_ranks ", ranks, " must divide the ", copies,
                             " ranks of dp x cp and be above 1, 0 is all of them; nearest legal "
                             "values: ",
                             nearest_divisors(copies, ranks, 2)));
  return ok_status();
}

Status check_context(const CallView& view) {
  if (view.s().cp == 1 || !view.generates()) return ok_status();
  return invalid_input("cp is for training and inference; nearest legal value: 1");
}

Status check_experts(const CallView& view) {
  const Strategy& s = view.s();
  const int64_t experts = view.size().experts;
  if (s.ep == 1 && expert_tp(s) == s.tp) return ok_status();
  if (experts == 0)
    return invalid_input(cat("ep and expert_tp partition experts, and ", view.call.role,
                             " has none; nearest legal values: ep 1 and expert_tp 0"));
  if (experts % s.ep != 0)
    return invalid_input(cat("ep ", s.ep, " must divide the ", experts, " experts of ",
                             view.call.role,
                             "; nearest legal values: ", nearest_divisors(experts, s.ep)));
  const int64_t devices = product_of({s.dp, s.cp, s.tp}), part = product_of({s.ep, expert_tp(s)});
  if (devices % part == 0) return ok_status();
  return invalid_input(cat("ep x expert_tp = ", s.ep, " x ", expert_tp(s), " = ", part,
                           " must divide the ", devices, " devices of dp x cp x tp; ",
                           "nearest legal values: ", nearest_divisors(devices, part)));
}

// Of the devices that have units for it.
Status check_precision(const CallView& view) {
  if (!view.s().precision) return ok_status();
  for (const GpuSpec& gpu : shape_of(view.problem.cluster, view.plan.mesh).kinds)
    BRAID_TRY(peak_flops(gpu, *view.s().precision).status().at("precision"));
  return ok_status();
}

Status check_training_only(const CallView& view) {
  if (view.s().recompute != Recompute::kNone && !view.trains())
    return invalid_input(cat("recompute ", recompute_name(view.s().recompute),
                             " is for training only; nearest legal value: none"));
  return ok_status();
}

Status check_generation_only(const CallView& view) {
  const Strategy& s = view.s();
  if (!view.generates()) {
    if (s.kv_budget_tokens == 0 && s.max_concurrent == 0) return ok_status();
    return invalid_input(
        "kv_budget_tokens and max_concurrent are for generation only; nearest legal value: 0");
  }
  if (s.micro_batches != 1 || s.micro_tokens != 0)
    return invalid_input(
        "generation batches continuously: leave micro_batches 1 and micro_tokens 0, and limit it "
        "with max_concurrent or kv_budget_tokens");
  const int64_t longest =
      longest_tokens(view.problem.workload.prompt) + longest_tokens(view.problem.workload.response);
  const int64_t least = pages_for(longest) * kPageTokens;
  if (s.kv_budget_tokens > 0 && s.kv_budget_tokens < least)
    return invalid_input(cat("kv_budget_tokens ", s.kv_budget_tokens,
                             " cannot hold one sequence of the longest prompt and response in "
                             "pages of ",
                             kPageTokens, "; nearest legal value: ", least));
  return ok_status();
}

Status check_batch(const CallView& view) {
  const Strategy& s = view.s();
  const int64_t samples =
      view.trains() ? minibatch_samples(view.problem) : call_samples(view.problem, view.call);
  const char* what = view.trains() ? " sequences of a mini-batch" : " sequences of the step";
  if (s.dp > samples)
    return invalid_input(cat("dp ", s.dp, " replicas exceed the ", samples, what,
                             "; nearest legal value: ", samples));
  if (view.generates()) return ok_status();
  if (s.micro_tokens > 0 && s.micro_batches > 1)
    return invalid_input(
        "micro_batches and micro_tokens exclude each other; leave micro_batches 1 or micro_tokens "
        "0");
  // Where dp does not divide the sequences, ranks differ by one of them, and so do micro-batches.
  const int64_t each = samples / s.dp;
  const bool even = samples % s.dp == 0;
  if (even ? each % s.micro_batches == 0 : s.micro_batches <= each) return ok_status();
  return invalid_input(cat("micro_batches ", s.micro_batches,
                           even ? " must divide the " : " must not exceed the ", each,
                           " sequences of a data-parallel rank; nearest legal values: ",
                           nearest_divisors(each, s.micro_batches)));
}

Status check_call(const CallView& view) {
  BRAID_TRY(validate_mesh(view.problem.cluster, view.plan.mesh));
  BRAID_TRY(at_least_one(view));
  BRAID_TRY(check_product(view));
  BRAID_TRY(check_tensor_parallel(view));
  BRAID_TRY(check_pipeline(view));
  BRAID_TRY(check_zero(view));
  BRAID_TRY(check_context(view));
  BRAID_TRY(check_experts(view));
  BRAID_TRY(check_precision(view));
  BRAID_TRY(check_training_only(view));
  BRAID_TRY(check_generation_only(view));
  return check_batch(view);
}

std::vector<std::string> model_calls(const Graph& graph) {
  std::vector<std::string> names;
  for (const Call& call : graph.calls)
    if (uses_model(call)) names.push_back(call.name);
  return names;
}

Status check_calls(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const std::vector<std::string> names = model_calls(problem.graph);
  std::set<std::string> seen;
  for (const CallPlan& entry : plan.calls) {
    const Call* call = find_call(problem.graph, entry.call);
    const std::string where = cat("call ", entry.call);
    if (call == nullptr)
      return invalid_input(cat(where, ": graph ", problem.graph.name, " has no such call",
                               did_you_mean(entry.call, names),
                               "; its calls: ", join(names, ", ")));
    if (!uses_model(*call))
      return invalid_input(cat(where, ": uses no model and takes no devices; remove it"));
    if (!seen.insert(entry.call).second) return invalid_input(cat(where, ": occurs twice"));
    BRAID_TRY(check_call({*call, entry, problem}).at(where));
  }
  for (const std::string& name : names)
    if (seen.count(name) == 0)
      return invalid_input(
          cat("call ", name, ": missing; every call that uses a model needs a mesh"));
  return ok_status();
}

Status check_roles(const ExecutionPlan& plan, const PlanningProblem& problem) {
  std::vector<std::string> names;
  for (const RoleSpec& spec : problem.graph.roles) names.push_back(spec.role.value);
  std::set<RoleId> seen;
  for (const RolePlan& entry : plan.roles) {
    const std::string where = cat("role ", entry.role);
    const RoleSpec* spec = find_role(problem.graph, entry.role);
    if (spec == nullptr)
      return invalid_input(cat(where, ": graph ", problem.graph.name, " has no such role",
                               did_you_mean(entry.role.value, names),
                               "; its roles: ", join(names, ", ")));
    if (!seen.insert(entry.role).second) return invalid_input(cat(where, ": occurs twice"));
    if (entry.optimizer != Residency::kDevice && !spec->trained)
      return invalid_input(cat(where,
                               ": is not trained and has no optimizer state; nearest legal "
                               "value of optimizer: device"));
    const bool away = entry.weights != Residency::kDevice || entry.optimizer != Residency::kDevice;
    if (away && !problem.may_offload)
      return invalid_input(cat(where,
                               ": state waits in host memory, and plan.offload is never; set "
                               "weights and optimizer to device, or plan.offload=auto"));
    if (!away && (entry.prefetch || entry.timing != OffloadTiming::kAfterLastCall))
      return invalid_input(cat(where,
                               ": when and prefetch say how state returns from the host; set "
                               "weights or optimizer to host, or leave them out"));
  }
  return ok_status();
}

// What an order of passes that is made before lengths are known can fuse.
Status check_fused_call(const CallPlan& call) {
  const Strategy& s = call.strategy;
  const auto refused = [&](const std::string& what) {
    return invalid_input(cat("fusion.train_schedules: call ", call.call, ": ", what));
  };
  if (s.micro_tokens > 0)
    return refused(
        "the fused order needs a fixed number of micro-batches; set micro_batches in "
        "place of micro_tokens");
  if (s.zero_stage >= 2 && dense_copies(s) > 1)
    return refused(cat("zero ", s.zero_stage,
                       " gathers or reduces inside of passes, which replicas run in different "
                       "orders; nearest legal value: zero 1"));
  if (s.ep > 1) return refused("experts exchange tokens inside of passes; set ep 1");
  if (s.schedule != PipelineOrder::kOneForwardOneBackward)
    return refused("the fused order takes the place of schedule gpipe; leave it out");
  return ok_status();
}

Status check_fused_pair(const CallPlan& a, const CallPlan& b) {
  const auto devices = [](const CallPlan& call) {
    std::vector<DeviceId> out = call.mesh.devices;
    std::sort(out.begin(), out.end());
    return out;
  };
  if (devices(a) != devices(b))
    return invalid_input(cat("fusion.train_schedules: ", a.call, " and ", b.call,
                             " run on different devices; give them the same ones, in any order, or "
                             "set it false"));
  BRAID_TRY(check_fused_call(a));
  return check_fused_call(b);
}

Status check_train_schedules(const ExecutionPlan& plan, const PlanningProblem& problem) {
  std::vector<std::string> trains;
  for (const Call& call : problem.graph.calls)
    if (call.kind == CallKind::kTrainStep) trains.push_back(call.name);
  if (trains.size() < 2 || trains.size() % 2 != 0)
    return invalid_input(cat("fusion.train_schedules: fuses two training calls, and graph ",
                             problem.graph.name, " has ", trains.size(),
                             "; nearest legal value: false"));
  for (size_t i = 0; i < trains.size(); i += 2)
    BRAID_TRY(check_fused_pair(call_plan(plan, trains[i]), call_plan(plan, trains[i + 1])));
  if (plan.fusion.seed < 0) return invalid_input("fusion.seed: must not be negative");
  if (plan.fusion.units < 1 || plan.fusion.units > kMaxFusionUnits)
    return invalid_input(
        cat("fusion.units: must be 1 to ", kMaxFusionUnits, ", is ", plan.fusion.units));
  return ok_status();
}

// Numbers at which a generation is handed over again.
Status check_again(const Fusion& fusion) {
  const std::string where = "fusion.migrate_below_samples: ";
  if (fusion.migrate_again_below.empty()) return ok_status();
  if (fusion.migrate_below_samples == kAutoMigration)
    return invalid_input(cat(where, "auto is one number; state all of a list"));
  if (std::ssize(fusion.migrate_again_below) >= kMostHandOvers)
    return invalid_input(cat(where, "has ", 1 + fusion.migrate_again_below.size(),
                             " numbers; state at most ", kMostHandOvers));
  int64_t before = fusion.migrate_below_samples;
  for (const int64_t again : fusion.migrate_again_below) {
    if (again < 1 || again >= before)
      return invalid_input(cat(where, again, " does not come behind ", before,
                               "; state the largest number first, and each once"));
    before = again;
  }
  return ok_status();
}

// Caches are copied before a generation is handed over at a number that is known.
Status check_pre_copy(const Fusion& fusion) {
  const int64_t copied = fusion.pre_copy_below_samples, handed = fusion.migrate_below_samples;
  const auto refused = [](const std::string& why, const std::string& how) {
    return invalid_input(cat("fusion.pre_copy_below_samples: ", why, "; ", how));
  };
  if (copied == 0) return ok_status();
  if (copied < 0) return refused("must not be negative", "set it to 0");
  if (!fusion.migrate_cache)
    return refused("no cache moves (migrate_cache: false), so there is nothing to copy",
                   "set it to 0");
  if (handed == kAutoMigration)
    return refused(cat("must be above the number of samples at which the generation is handed ",
                       "over, and migrate_below_samples: auto states none"),
                   "state that, or set it to 0");
  if (copied <= handed)
    return refused(cat(copied, " is not above migrate_below_samples, ", handed,
                       ", so that nothing is left to do ahead"),
                   cat("state a number from ", handed + 1, " on, or set it to 0"));
  return ok_status();
}

// One generation, by several replicas, whose samples stay those that were fetched.
Status check_hand_over(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.migrate_below_samples: ", why, "; set it to 0"));
  };
  if (plan.fusion.migrate_below_samples < kAutoMigration) return refused("must not be negative");
  BRAID_TRY(check_again(plan.fusion));
  BRAID_TRY(check_pre_copy(plan.fusion));
  const Call* generate = nullptr;
  for (const Call& call : problem.graph.calls) {
    if (call.kind == CallKind::kSelect)
      return refused("groups that are drawn again are generated in several rounds of the step");
    if (call.kind != CallKind::kGenerate) continue;
    if (generate != nullptr)
      return refused(cat("graph ", problem.graph.name, " generates twice, in ", generate->name,
                         " and ", call.name));
    generate = &call;
  }
  if (generate == nullptr) return refused(cat("graph ", problem.graph.name, " generates nothing"));
  if (call_plan(plan, generate->name).strategy.dp < 2)
    return refused(
        cat("call ", generate->name, " has dp 1, so no replica could take over another's samples"));
  if (plan.staleness > 0) return refused("is not available with staleness");
  return ok_status();
}

// Samples stay with the replica that they were given to until the step ends.
Status check_predicted_lengths(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.predicted_lengths: ", why, "; set it false"));
  };
  bool several = false;
  for (const Call& call : problem.graph.calls) {
    if (call.kind == CallKind::kSelect)
      return refused("groups that are drawn again are generated in several rounds of the step");
    if (call.kind == CallKind::kGenerate)
      several = several || call_plan(plan, call.name).strategy.dp > 1;
  }
  if (!generates(problem.graph))
    return refused(cat("graph ", problem.graph.name, " generates nothing"));
  if (!several) return refused("every generation has dp 1, so one replica draws all samples");
  if (plan.staleness > 0) return refused("is not available with staleness");
  return ok_status();
}

// Which samples the first mini-batches have is known before they are scored.
Status check_train_beside_scoring(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const int64_t first = plan.fusion.train_beside_scoring, all = problem.workload.minibatches;
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.train_beside_scoring: ", why, "; set it to 0"));
  };
  if (first < 0) return refused("must not be negative");
  if (first >= all)
    return refused(cat("the samples of ", first, " mini-batches are to be scored before the rest, ",
                       "and an epoch has ", all, " (train.minibatches)"));
  for (const Call& call : problem.graph.calls)
    if (call.kind == CallKind::kSelect)
      return refused("groups that are drawn again are learnt from when all are there");
  const std::pair<const char*, bool> others[] = {
      {"fusion.train_schedules", plan.fusion.train_schedules}, {"staleness", plan.staleness > 0}};
  for (const auto& [key, on] : others)
    if (on) return refused(cat("is not available with ", key));
  return ok_status();
}

// Whether the weights come over at all is known when lists are made.
Status check_sync_beside_training(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.sync_beside_training: ", why, "; set it false"));
  };
  if (!generates(problem.graph))
    return refused(cat("graph ", problem.graph.name, " generates nothing"));
  if (plan.staleness > 0)
    return refused("is not available with staleness, where weights come over beside training");
  return ok_status();
}

// It begins with what has finished when a generation is handed over.
Status check_train_beside_generation(const ExecutionPlan& plan) {
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.train_beside_generation: ", why, "; set it false"));
  };
  if (plan.fusion.migrate_below_samples == 0)
    return refused(
        "the update begins with what has finished when the generation is handed over, and "
        "migrate_below_samples is 0, so that it is not");
  if (plan.fusion.train_schedules) return refused("is not available with fusion.train_schedules");
  if (plan.fusion.train_beside_scoring != 0)
    return refused("is not available with fusion.train_beside_scoring");
  return ok_status();
}

Status check_fusion(const ExecutionPlan& plan, const PlanningProblem& problem) {
  if (plan.fusion.migrate_to_samples < 0)
    return invalid_input("fusion.migrate_to_samples: must not be negative");
  if (plan.fusion.migrate_below_samples != 0)
    BRAID_TRY(check_hand_over(plan, problem));
  else if (plan.fusion.migrate_to_samples != 0 || !plan.fusion.migrate_cache ||
           !plan.fusion.migrate_again_below.empty() || plan.fusion.scored_prefixes ||
           plan.fusion.pre_copy_below_samples != 0)
    return invalid_input(
        "fusion: migrate_to_samples, migrate_cache, pre_copy_below_samples and scored_prefixes say "
        "what becomes of samples that are left when a generation is handed over, and "
        "migrate_below_samples is 0, so that none is; set that, or remove them");
  if (plan.fusion.train_beside_generation) BRAID_TRY(check_train_beside_generation(plan));
  if (plan.fusion.predicted_lengths) BRAID_TRY(check_predicted_lengths(plan, problem));
  if (plan.fusion.train_beside_scoring != 0) BRAID_TRY(check_train_beside_scoring(plan, problem));
  if (plan.fusion.sync_beside_training) BRAID_TRY(check_sync_beside_training(plan, problem));
  if (plan.fusion.train_schedules) return check_train_schedules(plan, problem);
  if (plan.fusion.seed == Fusion().seed && plan.fusion.units == Fusion().units) return ok_status();
  return invalid_input(
      "fusion: seed and units are of the search for fused training, and train_schedules is false; "
      "remove them");
}

// Rollouts that overlap training need devices of their own.
Status check_staleness(const ExecutionPlan& plan, const PlanningProblem& problem) {
  if (plan.staleness == 0) return ok_status();
  if (plan.staleness < 0)
    return invalid_input(
        cat("staleness: must not be negative, is ", plan.staleness, "; nearest legal value: 0"));
  if (!generates(problem.graph))
    return invalid_input("staleness: the graph generates nothing; nearest legal value: 0");
  for (const Call& generate : problem.graph.calls) {
    if (generate.kind != CallKind::kGenerate) continue;
    for (const Call& train : problem.graph.calls)
      if (train.kind == CallKind::kTrainStep &&
          overlaps(call_plan(plan, generate.name).mesh, call_plan(plan, train.name).mesh))
        return invalid_input(cat("staleness: ", generate.name, " and ", train.name,
                                 " share devices and cannot run at the same time; separate their "
                                 "meshes or set staleness 0"));
  }
  return ok_status();
}

// Each replica keeps the samples that it leaves to the next step.
Status check_carried(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const std::string where = "rollout.in_flight: ";
  const std::pair<const char*, bool> others[] = {
      {"fusion.migrate_below_samples", plan.fusion.migrate_below_samples != 0},
      {"fusion.predicted_lengths", plan.fusion.predicted_lengths},
      {"fusion.train_beside_scoring", plan.fusion.train_beside_scoring != 0}};
  for (const Call& call : problem.graph.calls) {
    if (call.carried_steps == 0) continue;
    for (const auto& [key, on] : others)
      if (on)
        return invalid_input(cat(where,
                                 "samples are carried from step to step by the replica that ",
                                 "began them; set it to 1, or ", key, " off"));
    const int64_t replicas = call_plan(plan, call.name).strategy.dp;
    const Workload& work = problem.workload;
    if (work.prompts % replicas != 0 || work.prompts_in_flight % replicas != 0)
      return invalid_input(cat(where, work.prompts_in_flight, " prompts, of which a step takes ",
                               work.prompts, " (rollout.prompts_per_step), do not divide into the ",
                               replicas, " replicas of ", call.name,
                               "; choose numbers that do, or another dp"));
  }
  return ok_status();
}

}  // namespace

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.insert(high.begin(), n / i);
  }
  low.insert(low.end(), high.begin(), high.end());
  return low;
}

std::string nearest_divisors(int64_t n, int64_t wanted, int64_t least) {
  int64_t below = 0, above = 0;
  for (const int64_t divisor : divisors(n)) {
    if (divisor < least) continue;
    if (divisor <= wanted) below = divisor;
    if (divisor >= wanted && above == 0) above = divisor;
  }
  if (below == 0 || above == 0 || below == above) return cat(std::max(below, above));
  return cat(below, " and ", above);
}

Status validate(const ExecutionPlan& plan, const PlanningProblem& problem) {
  if (plan.graph != problem.graph.name)
    return invalid_input(cat("graph: the plan is for '", plan.graph, "', not for '",
                             problem.graph.name, "'; plan again or set algorithm.name"));
  const int devices = device_count(problem.cluster);
  if (plan.devices != devices)
    return invalid_input(cat("devices: the plan is for a cluster of ", plan.devices,
                             " devices, this one has ", devices,
                             "; plan again or correct the cluster section"));
  BRAID_TRY(check_calls(plan, problem));
  BRAID_TRY(check_roles(plan, problem));
  BRAID_TRY(check_fusion(plan, problem));
  BRAID_TRY(check_carried(plan, problem));
  return check_staleness(plan, problem);
}

ExecutionPlan plan_for(const PlanningProblem& problem) {
  ExecutionPlan plan;
  plan.graph = problem.graph.name;
  plan.devices = device_count(problem.cluster);
  return plan;
}

ExecutionPlan trivial_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) plan.calls.push_back({call.name, {{DeviceId{0}}}, {}});
  return plan;
}

const CallPlan& call_plan(const ExecutionPlan& plan, const std::string& call) {
  const auto found = std::find_if(plan.calls.begin(), plan.calls.end(),
                                  [&](const CallPlan& entry) { return entry.call == call; });
  BRAID_CHECK(found != plan.calls.end(), cat("the plan has no call ", call));
  return *found;
}

RolePlan role_plan(const ExecutionPlan& plan, const RoleId& role) {
  for (const RolePlan& entry : plan.roles)
    if (entry.role == role) return entry;
  RolePlan stays;
  stays.role = role;
  return stays;
}

}  // namespace braid::inline plan

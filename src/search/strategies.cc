#include "search/strategies.h"

#include <algorithm>
#include <set>

#include "plan/validate.h"
#include "program/expand.h"

namespace braid::inline search {
namespace {

constexpr int64_t kMostMicroBatchSequences = 64;
constexpr int64_t kLeastConcurrent = 4;
constexpr int64_t kMostPipelineStages = 16;

// What the fields of a strategy are combined with.
struct View {
  const Call& call;
  const ModelSize& model;
  int64_t samples = 0;  // of the call, or of a mini-batch
};

bool heads_divide(const ModelSize& model, int64_t tp) {
  if (model.heads % tp != 0) return false;
  return model.mla || model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
}

// Numbers of micro-batches of equal numbers of sequences, from single sequences on.
std::vector<int64_t> micro_batch_counts(int64_t each) {
  std::vector<int64_t> counts;
  for (const int64_t size : divisors(each))
    if (size <= kMostMicroBatchSequences || size == each) counts.push_back(each / size);
  return counts;
}

// Each replica keeps whole groups, of what a step takes and of what it leaves to the next one.
bool carried_divide(const Call& call, const Workload& work, int64_t dp) {
  return call.carried_steps == 0 || (work.prompts % dp == 0 && work.prompts_in_flight % dp == 0);
}

// Sequences that a generation has at once at most.
int64_t samples_at_once(const PlanningProblem& problem, const Call& call) {
  const Workload& work = problem.workload;
  const int64_t samples = call_samples(problem, call);
  return call.carried_steps == 0 ? samples : samples / work.prompts * work.prompts_in_flight;
}

void add_generate(const View& view, const Strategy& base, std::vector<Strategy>* out) {
  if (base.dp > view.samples) return;
  const int64_t each = (view.samples + base.dp - 1) / base.dp;
  Strategy s = base;
  s.sequence_parallel = false;
  for (int64_t concurrent = each;; concurrent = (concurrent + 1) / 2) {
    s.max_concurrent = concurrent;
    out->push_back(s);
    if (concurrent <= kLeastConcurrent) return;
  }
}

void add_infer(const View& view, const Strategy& base, std::vector<Strategy>* out) {
  if (base.dp > view.samples) return;
  for (const int zero : {0, 3}) {
    if (zero > 0 && (dense_copies(base) == 1 || base.pp > 1)) continue;
    Strategy s = base;
    s.zero_stage = zero;
    for (const int64_t count : micro_batch_counts(view.samples / base.dp)) {
      s.micro_batches = count;
      out->push_back(s);
    }
  }
}

// One forward, one backward, also in turns of several chunks, up to those of one layer each; and
// all forwards first, which waits less often for messages.
void add_schedules(const View& view, const Strategy& base, std::vector<Strategy>* out) {
  const int64_t most = base.micro_batches % base.pp == 0 ? view.model.layers / base.pp : 1;
  for (const int64_t interleave : std::set<int64_t>{1, 2, 4, std::max<int64_t>(1, most)}) {
    if (interleave > 1 && (base.pp == 1 || interleave > most)) continue;
    Strategy s = base;
    s.interleave = static_cast<int32_t>(interleave);
    out->push_back(s);
  }
  if (base.pp == 1 || base.micro_batches == 1) return;  // the orders are alike
  Strategy s = base;
  s.schedule = PipelineOrder::kAllForwardFirst;
  out->push_back(s);
}

void add_train(const View& view, const Strategy& base, std::vector<Strategy>* out) {
  if (base.dp > view.samples) return;
  for (const int zero : {0, 1, 2, 3}) {
    if (zero > 0 && dense_copies(base) == 1) continue;
    if (zero > 1 && base.pp > 1) continue;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const int64_t count : micro_batch_counts(view.samples / base.dp)) {
        Strategy s = base;
        s.zero_stage = zero;
        s.recompute = recompute;
        s.micro_batches = count;
        add_schedules(view, s, out);
      }
    }
  }
}

// The sizes that a tp x pp leaves open: how `copies` devices with the same tensors share sequences,
// and tokens of a sequence, and where experts lie.
std::vector<Strategy> with_axes(const View& view, const Strategy& sizes, int64_t copies,
                                const FurtherAxes& axes) {
  std::vector<Strategy> out;
  const bool shares_tokens = axes.context && view.call.kind != CallKind::kGenerate;
  const int64_t experts = axes.experts ? view.model.experts : 0;
  for (const int64_t cp : shares_tokens ? divisors(copies) : std::vector<int64_t>{1}) {
    Strategy s = sizes;
    s.cp = static_cast<int>(cp);
    s.dp = static_cast<int>(copies / cp);
    out.push_back(s);
    for (const int64_t ep : experts > 0 ? divisors(experts) : std::vector<int64_t>())
      for (const int of_one : std::set<int>{s.tp, 1}) {
        if (copies * s.tp % (ep * of_one) != 0 || (ep == 1 && of_one == s.tp)) continue;
        s.ep = static_cast<int>(ep);
        s.expert_tp = of_one == s.tp ? 0 : of_one;
        out.push_back(s);
      }
  }
  return out;
}

}  // namespace

FurtherAxes axes_of(const Strategy& strategy) {
  return {strategy.cp > 1, own_expert_grid(strategy)};
}

std::vector<Strategy> strategies_of(const PlanningProblem& problem, const Call& call, int devices,
                                    int per_node, const FurtherAxes& axes) {
  const bool trains = call.kind == CallKind::kTrainStep;
  const bool generates = call.kind == CallKind::kGenerate;
  const View view{call, model_of(problem, call.role).spec,
                  trains      ? minibatch_samples(problem)
                  : generates ? samples_at_once(problem, call)
                              : call_samples(problem, call)};
  std::vector<Strategy> out;
  for (const int64_t tp : divisors(std::min(devices, per_node))) {
    if (devices % tp != 0 || !heads_divide(view.model, tp)) continue;
    for (const int64_t pp : divisors(devices / tp)) {
      if (pp > std::min(view.model.layers, kMostPipelineStages)) continue;
      Strategy sizes;
      sizes.tp = static_cast<int>(tp);
      sizes.pp = static_cast<int>(pp);
      sizes.sequence_parallel = tp > 1;
      for (const Strategy& base : with_axes(view, sizes, devices / tp / pp, axes)) {
        if (generates) {
          if (carried_divide(call, problem.workload, base.dp)) add_generate(view, base, &out);
        } else if (trains) {
          add_train(view, base, &out);
        } else {
          add_infer(view, base, &out);
        }
      }
    }
  }
  return out;
}

}  // namespace braid::inline search

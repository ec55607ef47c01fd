#include "session/call_balance.h"

#include <vector>

#include "samples/step_metrics.h"

namespace braid::inline session {
namespace {

// New tokens of each replica.
std::vector<int64_t> generated_tokens(const StepContext& step, const Call& call, CallRows& rows,
                                      const SampleStore& store) {
  const CallId id = step.id_of(call);
  const std::vector<int64_t> lens = store.lens_of(call);
  std::vector<int64_t> out;
  for (const SampleRows& of_replica : rows.owned(id, step.position.step, SamplePart::kAll)) {
    out.push_back(0);
    for (const int32_t row : of_replica) out.back() += lens[row];
  }
  return out;
}

}  // namespace

void note_balance(const StepContext& step, const Call& call, CallRows& rows,
                  const SampleStore& store) {
  const CallId id = step.id_of(call);
  const bool generates = call.kind == CallKind::kGenerate;
  const bool passes = call.kind == CallKind::kInfer || call.kind == CallKind::kTrainStep;
  if (step.ranks() == 1 || !(generates || passes) || !step.leads(id)) return;
  // Of what goes on from the step before, lengths do not say what is new.
  if (generates && step.config.rollout.in_flight > 1) return;
  if (step.program.calls[id.value].strategy.dp == 1) return;
  step.record.metrics["perf/imbalance_" + call.name].add(
      generates ? token_imbalance(generated_tokens(step, call, rows, store))
                : token_imbalance(rows.partition(id, step.position.step)));
}

}  // namespace braid::inline session

#include "session/compute_calls.h"

#include "algo/algorithm.h"
#include "algo/batch.h"
#include "base/contains.h"
#include "host/work_section.h"

namespace braid::inline session {

namespace {

constexpr const char* kRewards = "rewards";  // those that samples are compared by

Result<Metrics> compute_rows(const StepContext& step, const Call& call, const Rows& rows) {
  if (rows.empty()) return Metrics();
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  BRAID_ASSIGN(AlgoBatch batch, step.store.gather(call.reads, rows));
  if (rows.size() < step.store.size() && contains(call.reads, kRewards)) {
    BRAID_ASSIGN(const at::Tensor rewards, step.store.reals(kRewards, step.store.all_rows()));
    batch.step_rewards = to_doubles(rewards);
  }
  BRAID_ASSIGN(ComputeResult result, function(batch, step.config.algorithm, step.position.algo));
  for (const Field& field : call.writes)
    BRAID_TRY(step.store.put_reals(field.name, rows, result.fields.at(field.name)));
  return std::move(result.metrics);
}

}  // namespace

// A function that keeps state runs on one rank, which needs it alone: the first rank of the job
// hears what has changed with the reports, for checkpoints.
Status compute(const StepContext& step, const Call& call) {
  const WorkSection section;
  const ComputedRows rows =
      step.rows.computed_by(step.id_of(call), step.position.step, step.rank());
  const AlgoState before = step.position.algo;
  BRAID_ASSIGN(const Metrics metrics, compute_rows(step, call, rows.reported));
  merge(step.record.metrics, metrics);
  BRAID_TRY(compute_rows(step, call, rows.others).status());
  for (const auto& [name, value] : step.position.algo)
    if (const auto was = before.find(name); was == before.end() || was->second != value)
      step.record.algo[name] = value;
  return ok_status();
}

}  // namespace braid::inline session

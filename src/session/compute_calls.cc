#include "session/compute_calls.h"

#include "algo/algorithm.h"
#include "host/work_section.h"

namespace braid::inline session {

Status compute(const StepContext& step, const Call& call) {
  const WorkSection section;
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  const CallId id = step.id_of(call);
  const bool leads = step.leads(id);
  const Rows rows =
      leads ? step.store.all_rows() : step.rows.computed_by(id, step.position.step, step.rank());
  if (rows.empty() && !leads) return ok_status();
  BRAID_ASSIGN(const AlgoBatch batch, step.store.gather(call.reads, rows));
  BRAID_ASSIGN(ComputeResult result, function(batch, step.config.algorithm, step.position.algo));
  for (const Field& field : call.writes)
    BRAID_TRY(step.store.put_reals(field.name, rows, result.fields.at(field.name)));
  if (leads) merge(step.record.metrics, result.metrics);
  return ok_status();
}

}  // namespace braid::inline session

#include "plan/executable.h"

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

Status refused(const std::string& where, const std::string& what) {
  return invalid_input(cat("plan: ", where, ": ", what,
                           " is not executable by braid train yet; 'braid simulate' prices it"));
}

}  // namespace

Status check_executable(const Call& call, const Strategy& s) {
  const std::string where = cat("call ", call.name);
  if (s.cp > 1) return refused(where, cat("cp ", s.cp));
  if (s.ep > 1) return refused(where, cat("ep ", s.ep));
  if (s.precision)
    return refused(where, cat("precision ", precision_name(*s.precision),
                              " (calls compute in model.dtype; leave it out)"));
  return ok_status();
}

Status check_executable(const ExecutionPlan& plan, const Graph& graph) {
  for (const CallPlan& entry : plan.calls) {
    const Call* call = find_call(graph, entry.call);
    if (call != nullptr && uses_model(*call)) BRAID_TRY(check_executable(*call, entry.strategy));
  }
  if (plan.staleness > 0 && plan.fusion.train_schedules)
    return refused("staleness",
                   cat(plan.staleness, " with fusion.train_schedules (set one of them off)"));
  return ok_status();
}

}  // namespace braid::inline plan

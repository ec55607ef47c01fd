#include <algorithm>

#include "advise/planning_text.h"
#include "advise/whole_plan.h"
#include "base/units.h"
#include "plan/plan_text.h"

namespace braid::inline advise {
namespace {

OrderedJson log_json(const Found& found) {
  OrderedJson log = OrderedJson::array();
  for (const LogEntry& entry : found.log)
    log.push_back({{"unit", entry.unit},
                   {"seconds", entry.elapsed_s},
                   {"step_s", entry.step_s},
                   {"fits", entry.fits}});
  return log;
}

OrderedJson keys_json(const PlannedKeys& keys) {
  const auto entries = [](const std::vector<PlannedKeys::Entry>& list) {
    OrderedJson out = OrderedJson::array();
    for (const PlannedKeys::Entry& entry : list)
      out.push_back({{"key", entry.key}, {"why", entry.why}});
    return out;
  };
  return {{"read", keys.read},
          {"without_effect", entries(keys.without_effect)},
          {"not_priced", entries(keys.not_priced)}};
}

OrderedJson result_json(const Planning& planning, const PlanRequest& request) {
  const Found& found = planning.found;
  const Verdict& v = planning.proposed.verdict;
  const ExecutionPlan& plan = planning.proposed.plan;
  OrderedJson json;
  json["version"] = kOutputVersion;
  json["step_s"] = v.step_s;
  if (const auto interval = step_interval(planning))
    json["interval_s"] = {interval->first, interval->second};
  json["fits"] = v.fits;
  json["peak_gib"] = v.peak_bytes / kGib;
  json["limit_gib"] = v.capacity_bytes / kGib;
  json["spare_gib"] = spare_bytes(v) / kGib;
  json["margin"] = found.margin;
  json["utilisation"] = v.utilisation;
  json["evaluator_s"] = static_cast<double>(found.cost.time_us) / 1e6;
  json["lower_bound_s"] = bound_s(planning);
  json["gap"] = std::max(0.0, 1 - bound_s(planning) / v.step_s);
  json["proven"] = found.proven && !(planning.whole && planning.whole->wins());
  json["evaluations"] = found.evaluations;
  json["bounds"] = found.bounds;
  json["judged"] = found.judged.size();
  json["units"] = found.units;
  json["seed"] = request.seed;
  json["seconds"] = planning.seconds;
  for (size_t c = 0; c < planning.space.calls.size(); ++c) {
    json["calls"][plan.calls[c].call] = v.call_s[c];
    json["begins"][plan.calls[c].call] = planning.detailed.begin_s[c];
  }
  json["host_s"] = host_s(planning);
  json["notes"] = planning.notes;
  json["keys"] = keys_json(planning.keys);
  json["plan"] = plan_json(plan);
  const Status trains = executable(planning);
  json["executable"] = trains.ok();
  if (!trains.ok()) json["not_executable"] = trains.message();
  if (found.faster)
    json["faster"] = {{"step_s", found.faster->verdict.step_s},
                      {"plan", plan_json(found.faster->plan)}};
  if (planning.whole) json["whole"] = whole_json(planning);
  json["log"] = log_json(found);
  return json;
}

OrderedJson what_if_json(const Planning& before, const Planning& after, const PlanRequest& request,
                         const std::vector<std::string>& changes) {
  OrderedJson json = result_json(after, request);
  json["changes"] = changes;
  json["ratio"] = after.proposed.verdict.step_s / before.proposed.verdict.step_s;
  json["diff"] = diff(before.proposed.plan, after.proposed.plan);
  return json;
}

}  // namespace

OrderedJson planning_json(const Planning& planning, const PlanRequest& request,
                          const PlanExtras& extras, const std::vector<std::string>& changes) {
  OrderedJson json = result_json(planning, request);
  if (extras.given)
    json["given"] = {{"step_s", extras.given->verdict.step_s},
                     {"peak_gib", extras.given->verdict.peak_bytes / kGib},
                     {"fits", extras.given->verdict.fits},
                     {"nothing_to_gain", extras.given->nothing_to_gain},
                     {"diff", diff(*planning.given, planning.proposed.plan)}};
  if (request.compare) json["compare"] = compare_json(planning.problem, extras.rows);
  if (request.explain) json["explain"] = explain_json(extras.explanations);
  if (!extras.beyond.ok())
    json["beyond_train"] = {{"not_tried", extras.beyond.status().message()}};
  else if (*extras.beyond)
    json["beyond_train"] = beyond_json(**extras.beyond);
  if (extras.fusion) json["fusion"] = fusion_json(*extras.fusion);
  if (extras.ahead) json["staleness"] = ahead_json(*extras.ahead);
  if (extras.migration) json["hand_over"] = migration_json(*extras.migration);
  if (extras.predicted) json["predicted_lengths"] = predicted_json(*extras.predicted);
  if (extras.early_update)
    json["training_beside_scoring"] = early_update_json(*extras.early_update);
  if (extras.exported)
    json["export"] = {{"framework", request.export_to},
                      {"text", extras.exported->text},
                      {"not_expressed", extras.exported->not_expressed},
                      {"beside", extras.exported->beside}};
  if (extras.what_if) json["what_if"] = what_if_json(planning, *extras.what_if, request, changes);
  return json;
}

}  // namespace braid::inline advise

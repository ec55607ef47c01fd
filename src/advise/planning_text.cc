#include "advise/planning_text.h"

#include <cmath>

#include "advise/table.h"
#include "advise/whole_plan.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/plan_text.h"

namespace braid::inline advise {
namespace {

std::string percent_text(double share) { return format_double(std::round(1e4 * share) / 100); }

std::string given_text(const Planning& planning, const GivenPlan& given) {
  const Verdict& v = given.verdict;
  const double best_s = planning.proposed.verdict.step_s;
  std::string out = cat("configuration  step ", step_text(v.step_s), ", peak ",
                        format_bytes(v.peak_bytes), v.fits ? "" : cat(" (", v.reason, ")"), "\n");
  if (given.nothing_to_gain)
    return out + "nothing to gain: the configuration is within 3 % of the best plan\n";
  if (v.fits)
    out += cat("gain           ", format_double(std::round(100 * v.step_s / best_s) / 100), " x\n");
  for (const std::string& line : diff(*planning.given, planning.proposed.plan))
    out += cat("  ", line, "\n");
  return out;
}

std::string interval_text(const Planning& planning) {
  const auto interval = step_interval(planning);
  if (!interval) return "";
  return cat("interval       ", step_text(interval->first), " to ", step_text(interval->second),
             ": four of five measured steps lay so near their prices\n");
}

std::string memory_text(const Planning& planning, double margin_percent) {
  const Verdict& v = planning.proposed.verdict;
  const double spare = spare_bytes(v) / v.capacity_bytes;
  std::string out =
      cat("peak memory    ", format_bytes(v.peak_bytes), " of ", format_bytes(v.capacity_bytes),
          ", ", format_bytes(spare_bytes(v)), " (", percent_text(spare), " %) to spare\n");
  if (planning.found.margin <= 0 && margin_percent > 0)
    out += cat("               no plan was found that leaves ", format_double(margin_percent),
               " % free; predictions of memory are this uncertain\n");
  return out;
}

// The plan that was passed over for a simpler one.
std::string faster_text(const Found& found) {
  if (!found.faster) return "";
  const double step_s = found.faster->verdict.step_s;
  std::string out = cat("faster plan    ", step_text(step_s), " (",
                        percent_text(1 - step_s / found.verdict->step_s),
                        " % less) with more layouts; --simpler 0 proposes it\n");
  for (const std::string& line : diff(found.plan, found.faster->plan)) out += cat("  ", line, "\n");
  return out;
}

std::string planned_text(const Planning& planning, const PlanRequest& request) {
  const Verdict& v = planning.proposed.verdict;
  const bool with_parts = planning.whole && planning.whole->wins();
  std::string out = cat(
      plan_table(planning.problem, planning.proposed.plan, planning.detailed), "host           ",
      step_text(host_s(planning)),
      ", at the begin of the step: data, rewards, logging\nstep           ", step_text(v.step_s),
      " (calls overlap: they do not add up to it), devices busy ", std::lround(100 * v.utilisation),
      " %\n", interval_text(planning), memory_text(planning, request.margin_percent),
      "lower bound    ", bound_text(planning), "\n", searched_text(planning, request),
      parts_text(planning), with_parts ? "" : faster_text(planning.found));
  for (const std::string& note : planning.notes) out += cat("note: ", note, "\n");
  for (const std::string& note : key_notes(planning.keys)) out += cat("note: ", note, "\n");
  if (const Status trains = executable(planning); !trains.ok())
    out += cat("train          ", trains.message(), "\n");
  return out;
}

// What no plan of `braid train` has; what stops that search stops nothing else.
std::string beyond_line(const Result<std::optional<BeyondProposal>>& beyond) {
  const std::string label = "beyond train   ";
  if (!beyond.ok())
    return cat(label, "context and expert parallelism were not tried: ", beyond.status().message(),
               "\n");
  return *beyond ? cat(label, beyond_text(**beyond)) : "";
}

std::string what_if_text(const Planning& before, const Planning& after,
                         const std::vector<std::string>& changes) {
  const double was_s = before.proposed.verdict.step_s, is_s = after.proposed.verdict.step_s;
  std::string out =
      cat("what if ", join(changes, ", "), ": step ", step_text(was_s), " -> ", step_text(is_s),
          " (", is_s < was_s ? "" : "+", percent_text(is_s / was_s - 1), " %)\n");
  for (const std::string& line : diff(before.proposed.plan, after.proposed.plan))
    out += cat("  ", line, "\n");
  return out;
}

// Which plan the lines below are about, where it is not the proposed one.
std::string explained_text(const Planning& planning) {
  if (!planning.whole || !planning.whole->wins()) return "";
  return cat("of the plan without ", parts_text(planning.proposed.plan), ":\n");
}

}  // namespace

std::string planning_text(const Planning& planning, const PlanRequest& request,
                          const PlanExtras& extras, const std::vector<std::string>& changes) {
  std::string out = planned_text(planning, request);
  out += beyond_line(extras.beyond);
  if (extras.given) out += given_text(planning, *extras.given);
  if (request.compare) out += cat("\n", compare_text(planning.problem, extras.rows));
  if (request.explain)
    out += cat("\n", explained_text(planning), explain_text(extras.explanations));
  if (extras.fusion) out += fusion_text(*extras.fusion, planning.found.plan);
  if (extras.migration) out += migration_text(*extras.migration);
  if (extras.predicted) out += predicted_text(*extras.predicted);
  if (extras.early_update) out += early_update_text(*extras.early_update);
  if (extras.ahead) out += ahead_text(*extras.ahead);
  if (extras.what_if) out += cat("\n", what_if_text(planning, *extras.what_if, changes));
  return out;
}

std::string exported_lines(const ExportedText& exported) {
  std::string out = exported.text;
  for (const std::string& lost : exported.not_expressed)
    out += cat("# not expressed: ", lost, "\n");
  for (const std::string& line : exported.beside) out += cat("# ", line, "\n");
  return out;
}

}  // namespace braid::inline advise

#include "advise/placements.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "advise/table.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/executable.h"
#include "plan/placement.h"
#include "plan/plan_text.h"
#include "search/judge.h"
#include "search/priced_parts.h"
#include "search/simulate.h"
#include "sim/traffic.h"

namespace braid::inline advise {
namespace {

constexpr double kSimplerShare = 0.03;  // that a simpler plan may take longer

// When a placement pays.
std::string when_to_use(const std::string& name) {
  static const std::map<std::string, std::string> words = {
      {"colocated", "few devices, or models that are large beside the memory"},
      {"interleaved", "models that score or train alike, and gain little from more devices"},
      {"disaggregated", "generation takes most of the step, in another layout than training"},
      {"split", "actor and critic of like size"},
      {"standalone", "many devices, of which each model needs few"},
      {"auto", "any: each call has the devices that a search gives it"}};
  const auto found = words.find(name);
  BRAID_CHECK(found != words.end(), cat("a placement without words: ", name));
  return found->second;
}

class PlacementComparison {
 public:
  PlacementComparison(const PlanningProblem& problem, const Calibration& calibration,
                      const PlanConstraints& stated, const SearchOptions& options)
      : problem_(problem), calibration_(calibration), stated_(stated), options_(options) {}

  PlacementRow row(const std::string& name) const {
    PlacementRow row;
    row.name = name;
    row.when = when_to_use(name);
    if (const Status status = fill(&row); !status.ok()) row.reason = status.message();
    return row;
  }

 private:
  Status fill(PlacementRow* row) const {
    PlanConstraints constraints;
    constraints.strategies = stated_.strategies;
    BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem_, calibration_));
    SpaceOptions space_options = executed_options(problem_);
    space_options.margin = options_.margin;
    if (row->name != "auto") {
      const MakeConstraints make = [&](const MeshSeconds& seconds) -> Result<PlanConstraints> {
        PlanConstraints placed{{}, {}, stated_.strategies};
        BRAID_ASSIGN(placed.meshes, placement_meshes(row->name, problem_,
                                                     {units_of(stated_.strategies), seconds}));
        return placed;
      };
      BRAID_ASSIGN(constraints, priced_constraints(make, pricer, space_options));
    }
    BRAID_ASSIGN(space_options, keeping(constraints, std::move(space_options)));
    BRAID_ASSIGN(PlanSpace space, make_plan_space(problem_, pricer, space_options));
    BRAID_ASSIGN(const Found found,
                 search_plans(space, options_, simulator_judge(problem_, calibration_)));
    BRAID_TRY(check_executable(found.plan, problem_.graph));
    BRAID_TRY(add_trace(found.plan, row));
    row->best = JudgedPlan{found.plan, *found.verdict};
    return ok_status();
  }

  // What one simulated step of the plan moves and holds.
  Status add_trace(const ExecutionPlan& plan, PlacementRow* row) const {
    BRAID_ASSIGN(const Program program, compile(plan, problem_));
    SimOptions options;
    options.events = true;
    BRAID_ASSIGN(const Trace trace, simulate(program, problem_, calibration_, options));
    for (const DeviceSummary& device : trace.devices) row->peak_bytes.push_back(device.peak_bytes);
    for (const Reallocation& entry : program.reallocations)
      for (const Message& message : entry.messages) row->weight_bytes += message.bytes;
    for (const TraceEvent& event : trace.events)
      if (event.kind == EventKind::kExchange && event.track != TrackKind::kNvlinkIn &&
          event.track != TrackKind::kNetworkIn)
        row->field_bytes += event.bytes;
    row->inside_bytes =
        bytes_inside_calls(program, problem_, draw_lengths(problem_.workload, options.seed));
    return ok_status();
  }

  const PlanningProblem& problem_;
  const Calibration& calibration_;
  const PlanConstraints& stated_;
  const SearchOptions& options_;
};

// The fastest; of those that take little longer the one with the simplest plan.
std::optional<size_t> recommended_row(const std::vector<PlacementRow>& rows,
                                      const PlanningProblem& problem) {
  double fastest = INFINITY;
  for (const PlacementRow& row : rows)
    if (row.best) fastest = std::min(fastest, row.best->verdict.step_s);
  std::optional<size_t> chosen;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].best || rows[i].best->verdict.step_s > (1 + kSimplerShare) * fastest) continue;
    const auto rank = [&](size_t row) {
      return std::pair(complexity(rows[row].best->plan, problem), rows[row].best->verdict.step_s);
    };
    if (!chosen || rank(i) < rank(*chosen)) chosen = i;
  }
  return chosen;
}

// Equal peaks once: "0-3: 20.1, 4-7: 61.0".
std::string peaks_text(const std::vector<double>& bytes) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < bytes.size();) {
    const std::string peak = fixed_text(bytes[first] / kGib, 1);
    size_t end = first + 1;
    while (end < bytes.size() && fixed_text(bytes[end] / kGib, 1) == peak) ++end;
    parts.push_back(cat(first, end - first > 1 ? cat("-", end - 1) : "", ": ", peak));
    first = end;
  }
  return join(parts, ", ");
}

}  // namespace

PlacementAdvice compare_placements(const PlanningProblem& problem, const Calibration& calibration,
                                   const PlanConstraints& stated, const SearchOptions& options) {
  const PlacementComparison comparison(problem, calibration, stated, options);
  PlacementAdvice advice;
  for (const std::string& name : placement_names()) advice.rows.push_back(comparison.row(name));
  advice.rows.push_back(comparison.row("auto"));
  advice.recommended = recommended_row(advice.rows, problem);
  return advice;
}

std::string placements_text(const PlanningProblem& problem, const PlacementAdvice& advice) {
  std::vector<std::vector<std::string>> cells = {
      {"placement", "step s", "weights GB", "samples GB", "calls GB", "peak GiB by device"}};
  std::string refused, when;
  for (const PlacementRow& row : advice.rows) {
    when += cat("  ", row.name, ": ", row.when, "\n");
    if (!row.best) {
      refused += cat("  ", row.name, ": ", row.reason, "\n");
      continue;
    }
    cells.push_back({row.name, fixed_text(row.best->verdict.step_s, 3),
                     fixed_text(row.weight_bytes / 1e9, 2), fixed_text(row.field_bytes / 1e9, 3),
                     fixed_text(row.inside_bytes / 1e9, 1), peaks_text(row.peak_bytes)});
  }
  std::string out = aligned_table(cells, {false, true, true, true, true, false});
  out +=
      "what devices send in a step: weights from layout to layout, samples from call to call, and "
      "inside calls\n";
  if (!refused.empty()) out += cat("no plan:\n", refused);
  out += cat("when to take which:\n", when);
  if (!advice.recommended) return cat(out, "recommended: none, no placement fits\n");
  const PlacementRow& best = advice.rows[*advice.recommended];
  return cat(out, "recommended: placement=", best.name, ", with these layouts\n",
             plan_to_yaml(best.best->plan, &problem.cluster));
}

Json placements_json(const PlacementAdvice& advice) {
  Json rows = Json::array();
  for (const PlacementRow& row : advice.rows) {
    Json json = {{"placement", row.name}, {"when", row.when}};
    if (row.best) {
      json["step_s"] = row.best->verdict.step_s;
      json["peak_bytes"] = row.peak_bytes;
      json["weight_bytes"] = row.weight_bytes;
      json["field_bytes"] = row.field_bytes;
      json["inside_bytes"] = row.inside_bytes;
      json["plan"] = plan_json(row.best->plan);
    } else {
      json["reason"] = row.reason;
    }
    rows.push_back(std::move(json));
  }
  Json out = {{"placements", rows}, {"recommended", nullptr}};
  if (advice.recommended) out["recommended"] = advice.rows[*advice.recommended].name;
  return out;
}

}  // namespace braid::inline advise

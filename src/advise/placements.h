// The placements that have names side by side: what each takes on a configuration, and which one to
// choose. Values and their texts; pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/make_problem.h"
#include "pricing/efficiency.h"
#include "search/search.h"

namespace braid::inline advise {

struct PlacementRow {
  std::string name;  // as `placement` takes it
  std::string when;  // it is the one to take, in a few words
  // The fastest plan that was found in it, with the simulator's verdict; none: `reason`.
  std::optional<JudgedPlan> best;
  std::vector<double> peak_bytes;  // by device
  double weight_bytes = 0;         // that move between layouts in a step
  double field_bytes = 0;          // of samples that calls get from each other in a step
  double inside_bytes = 0;         // that ranks send to each other inside the calls of a step
  std::string reason;              // why there is no plan
};

struct PlacementAdvice {
  std::vector<PlacementRow> rows;  // in the order of placement_names(), then auto
  std::optional<size_t> recommended;
};

// Searches, in every placement, the layouts that `braid train` executes and that keep the sizes in
// `stated` (whose devices are left aside). Recommended is the fastest; one with a simpler plan
// where it takes at most 3 % longer. `options` are of each search.
PlacementAdvice compare_placements(const PlanningProblem& problem, const Calibration& calibration,
                                   const PlanConstraints& stated, const SearchOptions& options);

// A table with a line for each placement, and which one is recommended.
std::string placements_text(const PlanningProblem& problem, const PlacementAdvice& advice);
Json placements_json(const PlacementAdvice& advice);

}  // namespace braid::inline advise

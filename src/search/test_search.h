// What tests of whole searches share: problems with a name, and a search as `braid plan` runs it.
// Stateless.
#pragma once

#include <cctype>
#include <cmath>
#include <string>

#include "base/testing.h"
#include "pricing/efficiency.h"
#include "search/simulate.h"

namespace braid::inline search {

struct NamedProblem {
  std::string name;
  PlanningProblem problem;
};

// The plan that the search proposes after so many units; `simpler` as in SearchOptions.
inline Result<Found> searched_plan(const PlanningProblem& problem, int64_t units,
                                   double simpler = 0.02, const Judge& judge = {},
                                   const Calibration& calibration = committed_calibration()) {
  constexpr double kMargin = 0.05;
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  SpaceOptions space_options;
  space_options.margin = kMargin;
  BRAID_ASSIGN(PlanSpace space, make_plan_space(problem, pricer, space_options));
  SearchOptions options;
  options.units.max_units = units;
  options.units.threads = 2;
  options.margin = kMargin;
  options.simpler = simpler;
  return search_plans(space, options, judge ? judge : simulator_judge(problem, calibration));
}

// Infinite without a plan.
inline double step_s(const Result<Found>& found) {
  return found.ok() ? found->verdict->step_s : HUGE_VAL;
}

// A name as GoogleTest takes it: "+" is "more", what is no letter and no digit "_".
inline std::string words_of(const std::string& name) {
  std::string out;
  for (const char c : name)
    out += c == '+'                                           ? "more"
           : std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c)
                                                              : "_";
  return out;
}

}  // namespace braid::inline search

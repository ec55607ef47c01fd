// Why a plan is as it is: per call, which resource binds and which alternatives were next best.
// Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "search/plan_search.h"

namespace braid::planner {

struct CallExplanation {
  std::string call;
  CallPlan chosen;
  double seconds = 0;   // of the call in the plan, weights and fields included
  double moving_s = 0;  // of that: weights, fields, loading
  // "links": moving weights and fields; "memory": a faster option does not fit; else the rate that
  // would shorten the call most if it doubled: "computation", "memory bandwidth", "links inside a
  // node" or "network"; "fixed times" where none does.
  std::string binds;
  std::string why;  // one sentence
  struct Other {
    CallPlan plan;
    double step_s = 0;  // of the step with it; everything else as it is
    bool fits = true;
  };
  std::vector<Other> next_best;
};

// Errors: what CallPricer refuses.
Result<std::vector<CallExplanation>> explain(const PlanSpace& space, const Choice& choice,
                                             int others, const Calibration& calibration);
std::string explain_text(const std::vector<CallExplanation>& calls);
Json explain_json(const std::vector<CallExplanation>& calls);

}  // namespace braid::planner

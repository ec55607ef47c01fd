// Why a plan is as it is: per call, which resource binds and which alternatives were next best.
// Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "search/search.h"

namespace braid::inline advise {

struct CallExplanation {
  std::string call;
  CallPlan chosen;
  double seconds = 0;   // of the call in the plan, as the verdict says it
  double moving_s = 0;  // weights, fields and loading of it, by the evaluator
  // "links": moving weights and fields; "memory": a faster option does not fit; else the rate that
  // would shorten the call most if it doubled: "computation", "memory bandwidth", "links inside a
  // node" or "network"; "fixed times" where none does.
  std::string binds;
  std::string why;  // one sentence
  struct Other {
    CallPlan plan;
    double step_ratio = 1;  // of the step with it over the plan's, everything else as it is
    bool fits = true;
  };
  std::vector<Other> next_best;
};

// `verdict` is that of the plan. Alternatives are at most `others`, and differ from the plan and
// from each other in their devices or in how they divide weights and work, not only in the size of
// micro-batches. Errors: what CallPricer refuses.
Result<std::vector<CallExplanation>> explain(const PlanSpace& space, const Choice& choice,
                                             const Verdict& verdict, int others,
                                             const Calibration& calibration);
std::string explain_text(const std::vector<CallExplanation>& calls);
Json explain_json(const std::vector<CallExplanation>& calls);

}  // namespace braid::inline advise

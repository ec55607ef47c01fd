// An execution plan in words, for people who read what a run did. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "plan/execution_plan.h"

namespace braid::inline plan {

// A sentence for each call with a model ("update_actor on devices 0-3: 2 copies, each with its
// share of the samples; each layer is split over 2 devices (tensor parallel)"), then one for each
// role whose state waits in host memory, and for what is fused.
std::vector<std::string> plan_words(const ExecutionPlan& plan);

}  // namespace braid::inline plan

// What a search found, as text and as JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "advise/plan_extras.h"
#include "base/json.h"

namespace braid::inline advise {

// `changes`: those of the configuration that `extras.what_if` is the plan of.
std::string planning_text(const Planning& planning, const PlanRequest& request,
                          const PlanExtras& extras, const std::vector<std::string>& changes);
OrderedJson planning_json(const Planning& planning, const PlanRequest& request,
                          const PlanExtras& extras, const std::vector<std::string>& changes);

// The configuration alone, so that it can be sent into a file; what is lost as comments.
std::string exported_lines(const ExportedText& exported);

}  // namespace braid::inline advise

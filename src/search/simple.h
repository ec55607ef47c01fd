// Plans that are easy to run and to understand: all calls on the whole cluster, in one layout, or
// in one of their own for generation. Pure; thread-safe.
#pragma once

#include <vector>

#include "search/space.h"

namespace braid::inline search {

// For one layout and for two the best by the evaluator, at most a few, those that fit; a function
// of the space.
std::vector<Choice> simple_choices(const PlanSpace& space);

}  // namespace braid::inline search

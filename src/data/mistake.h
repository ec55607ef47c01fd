// Wrong answers to the built-in tasks, for preference pairs. Pure functions.
#pragma once

#include <string>

#include "base/rng.h"

namespace braid::inline data {

// A wrong answer near `answer`, which must not be empty: one mistake or two, as a policy makes them
// that has learnt a little. What a reward model never saw as a mistake, PPO finds, so they cover
// characters left out, put in, replaced (by one of the answer, a near one or any) and swapped, and
// answers that go on; repeated characters are hit most. `in_order`: of a task whose answers are
// sorted, so most of the wrong ones are, too.
std::string wrong_answer(const std::string& answer, bool in_order, RandomStream& random);

}  // namespace braid::inline data

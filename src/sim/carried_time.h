// What a generation takes that leaves samples for the next step (rollout.in_flight): steps in a
// row, in each of which every replica goes on until it has the groups that are taken of it, by the
// rounds of the engine's scheduler and the prices of a step, beside the same steps that wait for
// all. What is carried is computed anew, prompt and tokens so far. Pure; thread-safe.
#pragma once

#include "plan/problem.h"
#include "pricing/efficiency.h"
#include "program/program.h"

namespace braid::inline sim {

struct CarriedOptions {
  int64_t steps = 16;  // of which the mean is taken, after as many as samples are carried for
  uint64_t seed = 0;   // of the lengths
};

// Means over the steps.
struct CarriedTime {
  double waiting_s = 0;       // of a generation that waits for all
  double carrying_s = 0;      // of one that does not
  double carried_tokens = 0;  // of responses, that it leaves
};

// Errors: a device that does not support the model's precision. REQUIRES: the program is of a plan,
// and its graph carries samples.
Result<CarriedTime> carried_time(const Program& program, const PlanningProblem& problem,
                                 const Calibration& calibration, const CarriedOptions& options);

}  // namespace braid::inline sim

// What was measured on the devices of a cluster, as part of the calibration that a planning problem
// is priced with. Pure apart from the reader that the caller passes in.
#pragma once

#include <string>
#include <vector>

#include "models/names.h"
#include "plan/problem.h"
#include "pricing/efficiency.h"

namespace braid::inline pricing {

// The calibration with the profiles that the problem's cluster names. Errors: a file that is
// missing or malformed, a profile in another precision than a model's.
Result<Calibration> with_profiles(Calibration calibration, const PlanningProblem& problem,
                                  const ReadText& read);

// What is priced less exactly than a person may think, one line each: layers that a profile does
// not have (priced from the rates of the device), and engines that were never measured (priced as
// the average one), and models of an architecture that is not known.
std::vector<std::string> pricing_notes(const Calibration& calibration,
                                       const PlanningProblem& problem);

}  // namespace braid::inline pricing

// The arguments of `braid plan`, and the plan of a configuration that they name.
#pragma once

#include <string>
#include <vector>

#include "advise/planning.h"
#include "braid/plan/import.h"

namespace braid {

struct PlanArguments {
  PlanRequest request;
  std::vector<std::string> inputs;
  std::vector<std::string> what_if;
  std::string out;
  std::string fused_out;    // file for the plan with fused training
  std::string calibration;  // file; "" = the built-in one
  bool json = false;
  ImportArguments import;  // of another framework's configuration
};

// Errors: numbers out of range, unknown frameworks, options that do not go together.
Status check_arguments(const PlanArguments& arguments);

// Loads the inputs and plans. Errors: those of find_plan().
Status plan_inputs(const PlanArguments& arguments, const std::vector<std::string>& inputs,
                   Planning& planning);

}  // namespace braid

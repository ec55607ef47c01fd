#include "reward/outcome.h"

#include <algorithm>
#include <cmath>

namespace braid {

RewardOutcome value_outcome(double value) {
  if (!std::isfinite(value)) return error_outcome("the reward is not a finite number");
  return {RewardOutcome::Kind::kValue, value, "", {}};
}

RewardOutcome timeout_outcome(std::string error) {
  return {RewardOutcome::Kind::kTimeout, 0, std::move(error), {}};
}

RewardOutcome error_outcome(std::string error) {
  return {RewardOutcome::Kind::kError, 0, std::move(error), {}};
}

Result<std::string> label_text(const RewardSample& sample) {
  const auto label = sample.extra.find("label");
  if (label == sample.extra.end() || label->is_null())
    return invalid_input("the sample has no 'label'");
  if (label->is_string()) return label->get<std::string>();
  if (label->is_number()) return label->dump();
  return invalid_input(
      cat("'label' is of type ", label->type_name(), "; text or a number is needed"));
}

}  // namespace braid

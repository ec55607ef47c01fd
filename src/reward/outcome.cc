#include "reward/outcome.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "reward/batches.h"

namespace braid::inline reward {
namespace {

constexpr size_t kExcerptBytes = 200;

}  // namespace

std::string excerpt(std::string_view text) {
  const std::string_view trimmed = trim(text);
  if (trimmed.size() <= kExcerptBytes) return std::string(trimmed);
  return cat(trimmed.substr(0, kExcerptBytes), "...");
}

RewardOutcome value_outcome(double value) {
  if (!std::isfinite(value)) return error_outcome("the reward is not a finite number");
  if (std::abs(value) > std::numeric_limits<float>::max())
    return error_outcome(cat("the reward ", value, " is beyond what training holds (3.4e38)"));
  return {RewardOutcome::Kind::kValue, value, "", {}};
}

RewardOutcome timeout_outcome(std::string error) {
  return {RewardOutcome::Kind::kTimeout, 0, std::move(error), {}};
}

RewardOutcome error_outcome(std::string error) {
  return {RewardOutcome::Kind::kError, 0, std::move(error), {}};
}

RewardOutcome absent_outcome() { return {RewardOutcome::Kind::kAbsent, 0, "", {}}; }

bool is_failure(const RewardOutcome& outcome) {
  return outcome.kind == RewardOutcome::Kind::kTimeout ||
         outcome.kind == RewardOutcome::Kind::kError;
}

ScoreWatch quiet_watch() {
  ScoreWatch watch;
  watch.ended = [] { return false; };
  watch.scored = [](const RewardOutcome&) {};
  return watch;
}

std::vector<std::vector<size_t>> Reward::batches(const std::vector<RewardSample>& samples) const {
  return cut_batches(samples, "sample");
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

}  // namespace braid::inline reward

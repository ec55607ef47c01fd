#include "rollout/length_history.h"

#include <cmath>
#include <vector>

#include "base/text.h"

namespace braid::inline rollout {
namespace {

constexpr double kNewest = 0.25;  // weight of the newest response
constexpr const char* kPrompts = "prompts";
constexpr const char* kMeans = "means";
constexpr const char* kSum = "sum";
constexpr const char* kNoted = "noted";

}  // namespace

void LengthHistory::note(int64_t prompt, int64_t tokens) {
  const auto [entry, first] = means_.emplace(prompt, static_cast<double>(tokens));
  if (!first) entry->second += kNewest * (static_cast<double>(tokens) - entry->second);
  sum_ += static_cast<double>(tokens);
  ++noted_;
}

int64_t LengthHistory::expected(int64_t prompt) const {
  if (noted_ == 0) return 0;
  const auto found = means_.find(prompt);
  return std::llround(found != means_.end() ? found->second : sum_ / static_cast<double>(noted_));
}

Json LengthHistory::json() const {
  std::vector<int64_t> prompts;
  std::vector<double> means;
  for (const auto& [prompt, mean] : means_) prompts.push_back(prompt), means.push_back(mean);
  return {{kPrompts, prompts}, {kMeans, means}, {kSum, sum_}, {kNoted, noted_}};
}

Status LengthHistory::load(const Json& json) {
  BRAID_ASSIGN(const auto prompts, json_field<std::vector<int64_t>>(json, kPrompts));
  BRAID_ASSIGN(const auto means, json_field<std::vector<double>>(json, kMeans));
  BRAID_ASSIGN(sum_, json_field<double>(json, kSum));
  BRAID_ASSIGN(noted_, json_field<int64_t>(json, kNoted));
  if (prompts.size() != means.size())
    return {Code::kDataLoss, cat("the lengths of earlier responses are of ", prompts.size(),
                                 " prompts, and there are ", means.size())};
  means_.clear();
  for (size_t i = 0; i < prompts.size(); ++i) means_[prompts[i]] = means[i];
  return ok_status();
}

}  // namespace braid::inline rollout

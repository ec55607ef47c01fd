#include "scoring/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "reward/pass_at_k.h"

namespace braid::inline scoring {
namespace {

struct Sum {
  double sum = 0;
  int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
};

// What a response says for each metric. A reward that does not apply says nothing.
std::map<std::string, double> values_of(const Json& sample, const EvalConfig& eval) {
  std::map<std::string, double> out;
  out["eval/response_mean"] = static_cast<double>(sample["response_ids"].size());
  out["eval/truncated_frac"] = sample["finish"] == "length" ? 1 : 0;
  for (const auto& [name, value] : sample["rewards"].items())
    if (value.is_number()) out[cat("eval/", name, "_mean")] = value.get<double>();
  if (!sample["total"].is_number()) return out;
  const double total = sample["total"].get<double>();
  out["eval/reward_mean"] = total;
  out["eval/accuracy"] = total >= eval.pass_threshold ? 1 : 0;
  return out;
}

}  // namespace

PromptMeans prompt_means(const EvalReport& report, const EvalConfig& eval) {
  std::map<std::string, std::map<int64_t, Sum>> sums;
  int64_t prompts = 0;
  for (const Json& sample : report.samples) {
    const int64_t prompt = sample["sample"].get<int64_t>() / eval.samples_per_prompt;
    prompts = std::max(prompts, prompt + 1);
    for (const auto& [name, value] : values_of(sample, eval)) sums[name][prompt].add(value);
  }
  PromptMeans out;
  for (const auto& [name, by_prompt] : sums) {
    out[name].assign(prompts, std::numeric_limits<double>::quiet_NaN());
    for (const auto& [prompt, sum] : by_prompt)
      out[name][prompt] = sum.sum / static_cast<double>(sum.count);
  }
  if (eval.samples_per_prompt < 2) return out;
  for (const auto& [prompt, sum] : sums["eval/accuracy"])
    for (const int64_t k : reported_k(eval.samples_per_prompt)) {
      if (k > sum.count) continue;
      auto& values = out[cat("eval/pass_at_", k)];
      values.resize(prompts, std::numeric_limits<double>::quiet_NaN());
      values[prompt] = pass_at_k(sum.count, std::llround(sum.sum), k);
    }
  return out;
}

PairedDifference paired_difference(const std::vector<double>& first,
                                   const std::vector<double>& second) {
  std::vector<double> differences;
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i)
    if (std::isfinite(first[i] - second[i])) differences.push_back(first[i] - second[i]);
  PairedDifference out;
  out.prompts = static_cast<int64_t>(differences.size());
  if (differences.empty()) return out;
  const auto n = static_cast<double>(differences.size());
  for (const double difference : differences) out.mean += difference / n;
  if (differences.size() < 2) return out;
  double squares = 0;
  for (const double difference : differences)
    squares += (difference - out.mean) * (difference - out.mean);
  out.standard_error = std::sqrt(squares / (n - 1) / n);
  return out;
}

}  // namespace braid::inline scoring

#include "plan/problem.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace braid::inline plan {

int64_t call_samples(const PlanningProblem& problem, const Call& call) {
  const int64_t each =
      call.samples_per_prompt > 0 ? call.samples_per_prompt : problem.workload.samples_per_prompt;
  return problem.workload.prompts * each;
}

double draws_of(const PlanningProblem& problem, const std::string& call) {
  if (problem.workload.draws == 1) return 1;
  const std::vector<Call>& calls = problem.graph.calls;
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].name == call)
      return select_around(problem.graph, CallId{static_cast<int32_t>(i)}).value < 0
                 ? 1
                 : problem.workload.draws;
  return 1;
}

double device_memory_bytes(const PlanningProblem& problem, const GpuSpec& gpu) {
  if (problem.memory_limit_gib <= 0) return gpu.hbm_bytes;
  return std::min(gpu.hbm_bytes, problem.memory_limit_gib * kGib);
}

double field_bytes(const Workload& workload, const Field& field) {
  constexpr double kBytesPerNumber = 4;
  if (field.shape == FieldShape::kPerToken) return kBytesPerNumber * mean_tokens(workload.response);
  return kBytesPerNumber * (field.type == FieldType::kTokens ? mean_tokens(workload.prompt) : 1);
}

int64_t minibatch_samples(const PlanningProblem& problem) {
  const Workload& work = problem.workload;
  return work.prompts * work.samples_per_prompt / std::max<int64_t>(1, work.minibatches);
}

int64_t longest_tokens(const LengthDistribution& lengths) {
  if (lengths.longest > 0) return lengths.longest;
  if (!lengths.samples.empty())
    return *std::max_element(lengths.samples.begin(), lengths.samples.end());
  if (lengths.kind == LengthDistribution::Kind::kFixed) return std::llround(lengths.mean);
  constexpr double kQuantile999 = 3.0902;  // of the standard normal distribution
  const double location = std::log(lengths.mean) - lengths.sigma * lengths.sigma / 2;
  return std::llround(std::ceil(std::exp(location + kQuantile999 * lengths.sigma)));
}

int64_t allowed_prompt_tokens(const Workload& workload) {
  return workload.prompt_limit > 0 ? workload.prompt_limit : longest_tokens(workload.prompt);
}

int64_t allowed_response_tokens(const Workload& workload) {
  return workload.response_limit > 0 ? workload.response_limit : longest_tokens(workload.response);
}

double mean_tokens(const LengthDistribution& lengths) {
  if (lengths.samples.empty()) return lengths.mean;
  double sum = 0;
  for (const int64_t sample : lengths.samples)
    sum += static_cast<double>(lengths.longest > 0 ? std::min(sample, lengths.longest) : sample);
  return sum / static_cast<double>(lengths.samples.size());
}

Precision precision_of(const RoleModel& model, const Strategy& strategy) {
  return strategy.precision ? *strategy.precision : model.precision;
}

const RoleModel& model_of(const PlanningProblem& problem, const RoleId& role) {
  const auto found = problem.models.find(role.value);
  BRAID_CHECK(found != problem.models.end(), cat("no model of role ", role));
  return found->second;
}

}  // namespace braid::inline plan

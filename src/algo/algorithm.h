// What an algorithm computes, tensors in, tensors out: advantage functions over a whole rollout and
// losses over a micro-batch. Pure functions of their arguments; state that lives across steps (KL
// controller) is explicit. Per-token fields are packed over the response tokens of the samples in
// order; legend: R response tokens, S samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/algorithm_options.h"

namespace braid::inline algo {

using Fields = std::map<std::string, at::Tensor>;

// A mean as (sum, count), so that means over micro-batches, epochs and ranks are exact; also min,
// max, and the sum of squared distances from the mean. They are merged as by Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
struct Metric {
  double sum = 0, count = 0, min = 0, max = 0, squares = 0;
  void add(double value, double weight = 1);
  void merge(const Metric& other);
  double mean() const { return count > 0 ? sum / count : 0; }
};
using Metrics = std::map<std::string, Metric>;

void merge(Metrics& into, const Metrics& from);

// The number shown under a name: the maximum for names that end in "max", the minimum for names
// that end in "min", the standard deviation (n - 1) for kAdvantageStd, otherwise the mean.
inline constexpr const char* kAdvantageStd = "adv/std";
double reported(const std::string& name, const Metric& metric);

// What of all samples of a step the results for one depend on: ranks that compute a part of them
// each add up theirs. Of sums, counts and squared distances alone: no min, no max.
struct StepSums {
  Metric advantages;       // of tokens, before they are whitened over the batch
  Metric returns, errors;  // of tokens, where there is a critic; errors: returns minus values
  // Sums of tokens, the count of the samples: log(old / ref); of completions of other prompts
  // log(policy / ref).
  Metric kl, mismatched;
  void merge(const StepSums& other);
};
inline constexpr int64_t kStepSumNumbers = 15;
// REQUIRES: as many numbers.
std::vector<double> numbers_of(const StepSums& sums);
StepSums step_sums(const std::vector<double>& numbers);

// Rollout or micro-batch: packed fields and their borders.
struct AlgoBatch {
  Fields fields;                       // f32 [R] per token or [S] per sample
  std::vector<int64_t> response_lens;  // [S]
  std::vector<int64_t> groups;  // [S] equal for samples of one prompt (or one preference pair)
  // Of all samples of the step, where the batch has a part of them; else empty.
  std::vector<double> step_rewards;
  std::vector<int64_t> step_groups = {};
  // Likewise, once they are known: a function is called without them to have its own ones first.
  std::optional<StepSums> step_sums = {};
};

// Numbers that must survive a checkpoint, by name (adaptive KL coefficient, running statistics).
using AlgoState = std::map<std::string, double>;

struct ComputeResult {
  Fields fields;
  Metrics metrics;
  StepSums sums = {};  // of the samples of the batch
};
using ComputeFn =
    std::function<Result<ComputeResult>(const AlgoBatch&, const AlgorithmOptions&, AlgoState&)>;

// Totals over the whole optimizer step, by which sums are divided (never a micro-batch's own
// counts).
struct Denominators {
  double tokens = 1, samples = 1, groups = 1;
};

// What the model gave for the micro-batch, attached to autograd.
struct ModelOutputs {
  at::Tensor logprobs_R;  // language-model head; undefined for scalar heads
  at::Tensor entropy_R;   // when the loss needs it
  at::Tensor values_R;    // scalar head per response token
  at::Tensor scores_S;    // scalar head at the last token
};

struct LossResult {
  at::Tensor loss;  // scalar, already divided by the global denominators
  Metrics metrics;
};
using LossFn = std::function<Result<LossResult>(const ModelOutputs&, const AlgoBatch&,
                                                const Denominators&, const AlgorithmOptions&)>;

// What a function leaves in the state of an algorithm, to which it was given a part of a step: what
// it would, had it been given all samples.
void note_step(const StepSums& of_step, const AlgorithmOptions& options, AlgoState& state);

// The functions that graphs name; an unknown name is an error that lists the known ones. A name
// that ends in .so is a library of the user's (own_functions.h).
Result<ComputeFn> find_compute(const std::string& name);
Result<LossFn> find_loss(const std::string& name);

}  // namespace braid::inline algo

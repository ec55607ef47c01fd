// What losses of a policy share: the ratio of new to old policy, weights of truncated importance
// sampling, KL and entropy terms, aggregation, metrics. A loss says what a token's ratio and
// advantage cost. Pure functions of their arguments. Shapes: R response tokens.
#pragma once

#include <functional>

#include "algo/algorithm.h"

namespace braid::inline algo {

struct PolicyTerms {
  at::Tensor logprobs_R, old_R, advantages_R;
  at::Tensor ratio_R;  // new / old, of the token or of its sample
};

struct PolicyObjective {
  std::function<Result<at::Tensor>(const PolicyTerms&, const AlgorithmOptions&)> losses_R;
  // Whether ratios are clipped on the side alone to which the advantage drives them.
  bool clips_gains_only = true;
};

// The loss of the micro-batch: the tokens' losses, weighted and aggregated, with the KL and the
// entropy term. Fields as policy_loss() in functions.h says.
Result<LossResult> policy_objective_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                         const Denominators& denominators,
                                         const AlgorithmOptions& options,
                                         const PolicyObjective& objective);

}  // namespace braid::inline algo

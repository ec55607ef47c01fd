// KL penalty: estimators and the controller of its coefficient. Pure functions of their arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include "algo/algorithm.h"

namespace braid::inline algo {

// Estimate of KL(p || q) from a token sampled from p, given log p and log q (Schulman,
// "Approximating KL divergence", 2020): k1 = log p - log q; k2 = k1^2 / 2; k3 = exp(-k1) - 1 + k1.
// REQUIRES: estimator is one of those names.
double kl_estimate(const std::string& estimator, double logprob, double ref_logprob);

// The same per element [R], differentiable in both arguments.
at::Tensor kl_estimate(const std::string& estimator, const at::Tensor& logprobs_R,
                       const at::Tensor& ref_logprobs_R);

// The coefficient in force: kl.coef, or the adapted one of the state.
double kl_coefficient(const KlOptions& kl, const AlgoState& state);

// Moves the adaptive coefficient towards the target (Ziegler et al., 2019, §2.2):
// e = clip(measured / target - 1, -0.2, 0.2); coef *= 1 + e * sequences / horizon.
// `measured` is the mean KL per sequence. Does nothing under the fixed controller.
void update_kl_coefficient(const KlOptions& kl, double measured, double sequences,
                           AlgoState& state);

// kl/ref_k1 and kl/ref_k3 per token.
void add_kl_metrics(Metrics& metrics, const std::vector<double>& logprobs,
                    const std::vector<double>& ref_logprobs);

}  // namespace braid::inline algo

#include "algo/kl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>

#include <algorithm>
#include <cmath>

namespace braid::inline algo {
namespace {

constexpr char kStateName[] = "kl_coef";

}  // namespace

double kl_estimate(const std::string& estimator, double logprob, double ref_logprob) {
  const double k1 = logprob - ref_logprob;
  if (estimator == "k1") return k1;
  if (estimator == "k2") return k1 * k1 / 2;
  BRAID_CHECK(estimator == "k3", estimator);
  return std::expm1(-k1) + k1;
}

at::Tensor kl_estimate(const std::string& estimator, const at::Tensor& logprobs_R,
                       const at::Tensor& ref_logprobs_R) {
  const at::Tensor k1 = logprobs_R - ref_logprobs_R;
  if (estimator == "k1") return k1;
  if (estimator == "k2") return k1 * k1 / 2;
  BRAID_CHECK(estimator == "k3", estimator);
  return at::expm1(-k1) + k1;
}

double kl_coefficient(const KlOptions& kl, const AlgoState& state) {
  const auto found = state.find(kStateName);
  return kl.controller == "adaptive" && found != state.end() ? found->second : kl.coef;
}

void update_kl_coefficient(const KlOptions& kl, double measured, double sequences,
                           AlgoState& state) {
  if (kl.controller != "adaptive") return;
  const double error = std::clamp(measured / kl.target - 1, -0.2, 0.2);
  state[kStateName] = kl_coefficient(kl, state) * (1 + error * sequences / kl.horizon);
}

void add_kl_metrics(Metrics& metrics, const std::vector<double>& logprobs,
                    const std::vector<double>& ref_logprobs) {
  Metric k1, k3;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    k1.add(kl_estimate("k1", logprobs[i], ref_logprobs[i]));
    k3.add(kl_estimate("k3", logprobs[i], ref_logprobs[i]));
  }
  metrics["kl/ref_k1"].merge(k1);
  metrics["kl/ref_k3"].merge(k3);
}

}  // namespace braid::inline algo

// Rewards per token with the KL penalty, returns and what whitens them: shared by the algorithms
// that reward tokens. Pure functions of their arguments; the state of the KL controller is
// explicit. Shapes: R response tokens, S samples.
#pragma once

#include "algo/algorithm.h"

namespace braid::inline algo {

// The score of each sample [S] at its last token; with kl.in reward minus kl.coef * KL(old || ref)
// at every token (fields old_logprobs [R], ref_logprobs [R]), which the controller sees; under
// whiten_rewards scaled to variance 1 [R]. An error names a missing field or an empty response.
Result<std::vector<double>> token_rewards(const AlgoBatch& batch, const std::vector<double>& scores,
                                          const AlgorithmOptions& options, AlgoState& state,
                                          Metrics& metrics);

// For each token the sum of the rewards from it to the end of its sample, discounted by gamma.
std::vector<double> returns_to_go(const std::vector<double>& rewards,
                                  const std::vector<int64_t>& begins, double gamma);

// normalize_advantages over tokens: batch whitens all of them, group those of each prompt, none
// leaves them.
Status normalize_tokens(const AlgoBatch& batch, const std::string& normalize,
                        std::vector<double>& advantages);

}  // namespace braid::inline algo

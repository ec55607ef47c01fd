// Rewards per token with the KL penalty, returns and what whitens them: shared by the algorithms
// that reward tokens. Pure functions of their arguments; the state of the KL controller is
// explicit. What they find of the batch's samples goes into metrics and sums of a result. Shapes: R
// response tokens, S samples.
#pragma once

#include "algo/algorithm.h"

namespace braid::inline algo {

// The score of each sample [S] at its last token; with kl.in reward minus kl.coef * KL(old || ref)
// at every token (fields old_logprobs [R], ref_logprobs [R]), which the controller sees where these
// are all samples of the step (note_step()); under whiten_rewards scaled to variance 1 [R]. An
// error names a missing field or an empty response.
Result<std::vector<double>> token_rewards(const AlgoBatch& batch, const std::vector<double>& scores,
                                          const AlgorithmOptions& options, AlgoState& state,
                                          ComputeResult& result);

// For each token the sum of the rewards from it to the end of its sample, discounted by gamma.
std::vector<double> returns_to_go(const std::vector<double>& rewards,
                                  const std::vector<int64_t>& begins, double gamma);

// normalize_advantages over tokens: batch whitens all of them, by the sums of the step where the
// batch is a part of it, group those of each prompt, none leaves them.
Status normalize_tokens(const AlgoBatch& batch, const std::string& normalize, ComputeResult& result,
                        std::vector<double>& advantages);

}  // namespace braid::inline algo

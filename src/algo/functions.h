// The functions behind the names of find_compute() and find_loss(), one file each. Thread-safe:
// they touch nothing but their arguments. Shapes: R response tokens, S samples.
#pragma once

#include "algo/algorithm.h"

namespace braid::inline algo {

// PPO (Schulman et al., 2017; Ouyang et al., 2022, §3.5): the sample's reward at its last token,
// minus kl.coef * KL(old || ref) per token when kl.in is reward; GAE; normalization.
// In: rewards [S], old_logprobs [R], values [R], ref_logprobs [R] (not needed when kl.coef is 0).
// Out: advantages [R], returns [R]. State: "kl_coef" under the adaptive controller.
Result<ComputeResult> ppo_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// GRPO (Shao et al., 2024, §4.1.2): the reward minus the mean of its group, divided by the unbiased
// standard deviation of the group (group), of the batch (batch) or by nothing (none, Liu et al.,
// 2025, "Dr. GRPO").
// In: rewards [S]. Out: advantages [R].
Result<ComputeResult> grpo_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// RLOO (Ahmadian et al., 2024, §2.2): the sample's reward, minus the KL penalty of its tokens when
// kl.in is reward, minus the mean of that of the other samples of its group. All tokens of a sample
// have it; normalization over tokens.
// In: rewards [S], old_logprobs [R] and ref_logprobs [R] under the penalty. Out: advantages [R].
Result<ComputeResult> rloo_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// REINFORCE (Williams, 1992) and REINFORCE++ (Hu, 2025): returns of the rewards per token from each
// token on, discounted by gamma; normalization over tokens. In and out as rloo_advantages.
Result<ComputeResult> reinforce_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// REINFORCE++-baseline (Hu, 2025): the same of rewards minus the mean of their group.
Result<ComputeResult> reinforce_baseline_advantages(const AlgoBatch&, const AlgorithmOptions&,
                                                    AlgoState&);

// ReMax (Li et al., 2023, alg. 1): the same minus the reward of the prompt's greedy response. In
// too: greedy_rewards [S].
Result<ComputeResult> remax_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// On-policy distillation: the reward of a token is kl.coef times log(teacher / policy), that of the
// sample's last one has its rewards too; returns discounted by gamma; normalization over tokens.
// In: rewards [S], old_logprobs [R], teacher_logprobs [R]. Out: advantages [R].
Result<ComputeResult> distill_advantages(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// The best sample of each group is preferred to the worst (Guo et al., 2024, alg. 1).
// In: rewards [S]. Out: preferred [S]: 1, -1, and 0 for others and where all rewards are equal.
Result<ComputeResult> best_and_worst(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// The sampler's own log-probs as those of the old policy: the ratio is then against the
// distribution that was sampled from, truncated or not. In: sampler_logprobs [R]. Out: old_logprobs
// [R].
Result<ComputeResult> sampler_logprobs(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// Clipped policy gradient with optional dual clip, entropy bonus and KL penalty.
// Fields: old_logprobs [R], advantages [R], ref_logprobs [R] when the KL penalty is in the loss,
// sampler_logprobs [R] when tis_cap is on: the clipped loss of a token is then weighted by
// min(exp(old - sampler), tis_cap), a constant (truncated importance sampling, Yao et al., 2025).
Result<LossResult> policy_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                               const AlgorithmOptions&);

// CISPO (MiniMax, 2025, §3.1): the clipped ratio is a constant weight of advantage times log-prob,
// so that every token has a gradient. Fields and other terms as policy_loss().
Result<LossResult> cispo_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                              const AlgorithmOptions&);

// Half the squared error of values_R, the worse of clipped and unclipped, mean over tokens.
// Fields: values [R] (of the rollout), returns [R].
Result<LossResult> value_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                              const AlgorithmOptions&);

// The sum of policy_loss() and value_loss() of one model with both heads (Schulman et al., 2017,
// eq. 9, where critic_coef is c1). Fields of both.
Result<LossResult> policy_and_value_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                         const AlgorithmOptions&);

// Negative log-likelihood of the response tokens, mean over the tokens that loss_mask [R] (optional
// field, 0 or 1) keeps: Denominators::tokens counts kept tokens.
Result<LossResult> sft_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                            const AlgorithmOptions&);

// Bradley-Terry (Ouyang et al., 2022, §3.5, eq. 1) over pairs: sample 2i is preferred to 2i + 1.
// Mean over Denominators::groups, which counts pairs.
Result<LossResult> pairwise_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                 const AlgorithmOptions&);

// Of single responses: the squared difference of score and `score` [S], and the binary
// cross-entropy of sigmoid(score) under the label `wanted` [S] (1 or 0). Mean over
// Denominators::samples.
Result<LossResult> squared_error_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                      const AlgorithmOptions&);
Result<LossResult> cross_entropy_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                      const AlgorithmOptions&);

// DPO and its kin (algorithm.preference_loss) over pairs of samples of one group: those that
// `preferred` [S] names where there is such a field, else each sample and the next. Mean over
// Denominators::groups. Fields: ref_logprobs [R].
Result<LossResult> preference_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                   const AlgorithmOptions&);

// ORPO over pairs as above: the negative log-likelihood of the chosen response, mean over its
// tokens, plus beta times the loss of the ratio of the pair's odds.
Result<LossResult> odds_ratio_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                                   const AlgorithmOptions&);

// KTO's baseline: the mean over the samples of log(policy / reference) of a completion of another
// prompt, at least 0: the same number for all.
// In: mismatched_logprobs [R], mismatched_ref_logprobs [R]. Out: kl_baseline [S].
Result<ComputeResult> kto_baseline(const AlgoBatch&, const AlgorithmOptions&, AlgoState&);

// KTO: w (1 - sigmoid(beta (z - b))) of a wanted sample, w' (1 - sigmoid(beta (b - z))) of another,
// z = log(policy / reference) of its response, b the baseline. Mean over Denominators::samples.
// Fields: ref_logprobs [R], kl_baseline [S], wanted [S] (1 or 0).
Result<LossResult> kto_loss(const ModelOutputs&, const AlgoBatch&, const Denominators&,
                            const AlgorithmOptions&);

}  // namespace braid::inline algo

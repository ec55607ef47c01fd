// Scores of reward models: the one way for training and evaluation.
#pragma once

#include <vector>

#include "config/options.h"
#include "nn/model.h"
#include "reward/reward.h"

namespace braid {

// One value per sample, prompt and response together, in micro-batches by train.micro_tokens and
// train.share_prompts. The model rests afterwards. REQUIRES: the model has a scalar head.
std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         const TrainConfig& train);

}  // namespace braid

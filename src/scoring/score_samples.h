// Scores of reward models that are no role of a graph, and scores as outcomes of rewards.
#pragma once

#include <vector>

#include "config/options.h"
#include "nn/model.h"
#include "reward/reward.h"
#include "samples/sample_store.h"

namespace braid::inline scoring {

// One value per sample, prompt and response together, in micro-batches by train.micro_tokens and
// train.share_prompts. The model rests afterwards. REQUIRES: the model has a scalar head.
std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         const TrainConfig& train);

// The samples as those of a step, so that the ops of a reward call compute them.
Status put_samples(const std::vector<RewardSample>& samples, const std::string& responses,
                   SampleStore& store);

// A store with as many samples as `like`, of which these rows are here: a reward model's own tokens
// in the place of what `field` has.
Result<SampleStore> store_as_read(const Graph& graph, const SampleStore& like, const Rows& rows,
                                  const std::string& field, std::vector<RewardSample> samples);

// Values of a reward model as the outcomes of its reward.
std::vector<RewardOutcome> score_outcomes(const std::vector<double>& values);

}  // namespace braid::inline scoring

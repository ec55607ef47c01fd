// Lengths of responses that a run predicts from earlier ones to the same prompts, step by step
// (fusion.predicted_lengths, rollout.longest_first). Every rank knows which records of the data a
// step has and is told how long all responses are, so that all of them predict alike.
#pragma once

#include <optional>
#include <vector>

#include "config/options.h"
#include "data/dataset.h"
#include "program/program.h"
#include "rollout/length_history.h"
#include "samples/sample_store.h"

namespace braid::inline session {

// Whether a run looks at predictions.
bool predicts(const Config& config, const Program& program);
// Of each sample of a step, before its responses are drawn; empty before anything was noted.
std::vector<int64_t> predicted_lengths(const SampleStore& store, const DataSet& data,
                                       const LengthHistory& history);
// Notes what became of them. REQUIRES: the step has ended on all ranks.
void note_in_history(const SampleStore& store, const DataSet& data, LengthHistory* history);
// How the predictions of a step correlate with the mean lengths of the responses to each prompt;
// none where nothing was predicted, or either of them are all the same.
std::optional<double> length_correlation(const SampleStore& store,
                                         const std::vector<int64_t>& predicted);

}  // namespace braid::inline session

// The numbers that a step reports about its samples, taken from the store. Pure functions.
#pragma once

#include "algo/algorithm.h"
#include "data/tokenizer/tokenizer.h"
#include "program/partition.h"
#include "samples/sample_store.h"

namespace braid::inline samples {

// length/*: tokens of prompts and responses of these rows, and how responses ended.
void note_lengths(const SampleStore& store, const Rows& rows, Metrics& metrics);

// mismatch/*: the sampler's log-probs against the trainer's, once both are known. k3 is the
// estimate of their divergence (Schulman, "Approximating KL divergence", 2020).
void note_mismatch(const SampleStore& store, const Rows& rows, Metrics& metrics);

// How many of the rows have a list of this field.
int64_t rows_with_tokens(const SampleStore& store, const std::string& field, const Rows& rows);

// Prompt and response tokens of the rows.
int64_t row_tokens(const SampleStore& store, const Rows& rows);

// Rows of a step that samples.jsonl shows.
inline constexpr size_t kShownSamples = 3;

// How uneven data-parallel ranks are: the most tokens of one over the mean, 1 where all have as
// many.
double token_imbalance(const std::vector<int64_t>& by_rank);
// Of all mini-batches, at the end of each of which ranks wait for the fullest.
double token_imbalance(const Partition& partition);

// Texts and numbers of the first rows, for samples.jsonl; texts end before the first of `stops`,
// `step` counts from 0. "reward" is what training used, "rewards" what each of the list gave,
// without weights and penalties, "drawn" the tokens by version of
// the weights (StoredSample::drawn).
std::vector<Json> sample_rows(const SampleStore& store, const Tokenizer* tokenizer,
                              const std::vector<std::string>& stops, int64_t step, size_t count);

}  // namespace braid::inline samples

// Which rows train together: the mini-batches of a train call and the micro-batches of an update.
// Pure functions of the samples' groups and lengths, alike on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "runtime/sample_store.h"

namespace braid {

// The mini-batches of all epochs of a train call in step `step`, in order. Mini-batches hold whole
// groups where the groups divide evenly, else single samples; every epoch has its own order. None
// where there are no rows.
std::vector<Rows> mini_batches(const SampleStore& store, const Rows& rows,
                               const TrainConfig& options, int64_t step);

// Cuts rows into micro-batches of at most micro_tokens tokens. With `whole_groups` neighbours of
// one group share a micro-batch: where the data has groups (preference pairs) a loss compares
// their rows. Groups of generated samples are compared before, over the whole rollout.
std::vector<Rows> micro_batches(const SampleStore& store, const Rows& rows, int64_t micro_tokens,
                                bool whole_groups);

// Totals over the rows of a whole update, so that no loss depends on its cut into micro-batches.
Denominators denominators(const SampleStore& store, const Rows& rows);

}  // namespace braid

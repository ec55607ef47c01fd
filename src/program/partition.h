// Load balancing: which sample is where. The mini-batches of a training call, the samples that each
// data-parallel rank works on, and its micro-batches. Every rank, the simulator and the emulation
// call partition_samples() with equal arguments and get equal results; nobody cuts samples in
// another way. Pure; thread-safe.
//
// Three steps, each independent of what comes after it:
//   1. Membership of mini-batches is a permutation of the whole step (seed, step and epoch), the
//      same in every layout.
//   2. A mini-batch is partitioned over the data-parallel ranks: as many units each (or one fewer),
//      and about as many tokens, or in order where the strategy says in_order. Of more than
//      kApartRanks ranks each keeps what it has of the step's samples, which it read or generated,
//      and passes on what is over its share of the tokens (program/near_parts.h). Where the fullest
//      has over 1/128 more tokens than by load alone, load alone counts. A call that does not train
//      has the samples that each rank is given to train in the first epoch, so that those of as
//      many ranks stay where they are.
//   3. What a rank got becomes micro-batches: by the token budget of the strategy, else by number.
// A unit is a group where its samples must meet (preference pairs), else a sample. Where samples of
// a group that meet in a micro-batch share its prompt, units of steps 2 and 3 are equal pieces of
// groups: of those sizes that were tried the one with the least work, which weighs prompts that are
// computed again against ranks and stages that wait.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "plan/execution_plan.h"

namespace braid::inline program {

// What a partition depends on of a sample, once rewards and drops are known. Prompt and response in
// tokens.
struct PartitionSample {
  SampleId id;
  GroupId group;
  int64_t prompt = 0, response = 0;
  bool kept = true;  // false: no call after the drop works on it
  // Tokens of the response that the losses count; none: all of them.
  std::optional<int64_t> learned = {};
  friend bool operator==(const PartitionSample&, const PartitionSample&) = default;
};

// Indices into the list of samples that partition_samples() was given: all ranks have the same
// list.
using SampleRows = std::vector<int32_t>;

struct PartitionOptions {
  bool trains = false;      // false: one mini-batch of all samples in order
  uint64_t seed = 0;        // train.seed: of the permutation
  int64_t step = 0;         // of the run
  int64_t epochs = 1;       // over the samples of a step
  int64_t minibatches = 1;  // of an epoch: optimizer steps
  // Groups are never cut. False: mini-batches consist of whole groups where the number of groups is
  // a multiple of theirs, and samples are units singly.
  bool whole_groups = false;
  // Samples of a group that meet in a micro-batch have its prompt once.
  bool share_prompts = false;
  // Ranks keep what they have of the step's samples. False: load alone counts, as in engines that
  // bring a step together in one place.
  bool keep_near = false;
  friend bool operator==(const PartitionOptions&, const PartitionOptions&) = default;
};

// A sample in its micro-batch: its tokens, the first of which are another's too.
struct PackedLength {
  int64_t tokens = 0;
  int64_t shared = 0;
  friend bool operator==(const PackedLength&, const PackedLength&) = default;
};

// What the losses of an optimizer step divide by: all ranks, all micro-batches. Learned tokens,
// samples, groups.
struct LossTotals {
  int64_t tokens = 0, samples = 0, groups = 0;
  friend bool operator==(const LossTotals&, const LossTotals&) = default;
};

// What one optimizer step works on (or a call that does not train).
struct MiniBatch {
  int64_t epoch = 0, index = 0;  // index: within the epoch
  SampleRows rows;               // in the order of the permutation
  LossTotals totals;
  std::vector<std::vector<SampleRows>> micro_batches;  // [dp rank][micro-batch]; may be empty
  std::vector<std::vector<int64_t>> tokens;            // of each, those that are shared once
  // Of an optimizer step that is made in parts (program/streamed_update.h): there are gradients of
  // a part before this one, and another comes behind it.
  bool begun = false, goes_on = false;
  friend bool operator==(const MiniBatch&, const MiniBatch&) = default;
};

struct Partition {
  std::vector<MiniBatch> minibatches;  // epoch after epoch
  std::vector<SampleRows> owned;       // [dp rank]: what it works on at any time, ascending
  // [dp rank]: samples of which the last micro-batches have the beginning alone, and which another
  // part owns (program/scored_prefixes.h); empty: there are none.
  std::vector<SampleRows> begun = {};
  friend bool operator==(const Partition&, const Partition&) = default;
};

// Whether the passes of data-parallel ranks meet in collectives (ZeRO-2 and 3 reduce gradients and
// gather weights, expert parallelism exchanges tokens): then all have as many micro-batches of a
// mini-batch, some of them empty.
bool passes_meet(const Strategy& strategy, bool trains);

// The mini-batches, shares and micro-batches of a call. Samples that are not kept are left out.
Partition partition_samples(const std::vector<PartitionSample>& samples, const Strategy& strategy,
                            const PartitionOptions& options);

// The partition of a call that does not train whose ranks have these rows, [dp rank], already:
// their micro-batches alone are cut.
Partition partition_shares(const std::vector<SampleRows>& shares,
                           const std::vector<PartitionSample>& samples, const Strategy& strategy,
                           const PartitionOptions& options);

// Step 1 alone: rows of every mini-batch, [epoch * minibatches + index], in the permutation's
// order. There are never more mini-batches than kept samples.
std::vector<SampleRows> partition_minibatches(const std::vector<PartitionSample>& samples,
                                              const PartitionOptions& options);

// The samples of one micro-batch as it packs them, in order.
std::vector<PackedLength> packed_lengths(const SampleRows& rows,
                                         const std::vector<PartitionSample>& samples,
                                         bool share_prompts);

// Step 2 alone, of the rows of a mini-batch, one of those of partition_minibatches(): [dp rank].
std::vector<SampleRows> partition_over_ranks(const SampleRows& rows,
                                             const std::vector<PartitionSample>& samples,
                                             const Strategy& strategy,
                                             const PartitionOptions& options);
// Step 3 alone: the micro-batches of every rank's rows, [dp rank][micro-batch].
std::vector<std::vector<SampleRows>> cut_shares(const std::vector<SampleRows>& shares,
                                                const std::vector<PartitionSample>& samples,
                                                const Strategy& strategy,
                                                const PartitionOptions& options);

// The tokens of a data-parallel rank's micro-batches become those of samples of other lengths; what
// consists of what stays.
void set_lengths(const std::vector<PartitionSample>& samples, int dp_rank, bool share_prompts,
                 Partition* partition);

// Consecutive items, in order, as many as fit in `budget` tokens: their indices. An item that is
// longer is alone. Every item is in exactly one part, and none is empty.
std::vector<SampleRows> cut_by_tokens(const std::vector<int64_t>& tokens, int64_t budget);

// The samples that each generation replica is given: runs of the step's samples in order.
std::vector<SampleRows> partition_requests(int64_t samples, const Strategy& strategy);
// The same of samples whose numbers of new tokens are predicted: as many to each replica, and about
// as many tokens, the longest first. Of each `group` in a row, which have one prompt, as many stay
// together as let all replicas have as many pieces.
std::vector<SampleRows> partition_requests(const std::vector<int64_t>& predicted, int64_t group,
                                           const Strategy& strategy);

// Puts items into bins: the largest first, each to the bin that holds least and has room (Graham,
// "Bounds on multiprocessing timing anomalies", 1969, with bins of given size). Returns the items
// of each bin in ascending order. REQUIRES: the room of all bins is the number of items.
std::vector<SampleRows> balance_load(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& room);

// Data-parallel ranks among which load alone counts: each exchanges samples with all others.
inline constexpr int64_t kApartRanks = 4;

// Number of the rules above: another one means other partitions from equal arguments.
inline constexpr int kPartitionRules = 5;

// Begin of run k of `count` runs of `size` items whose sizes differ by at most one.
inline int64_t run_begin(int64_t size, int64_t k, int64_t count) { return size * k / count; }

}  // namespace braid::inline program

// Stage fusion of generation and scoring, at the level of samples (RLHFuse, arXiv 2409.13221,
// section 4; formulas in the notes of its authors): when few samples are left, the replicas that
// have the most of them take over the others' and go on, and the ranks of the other replicas score
// what has finished. A plan may ask for that again, when fewer are left: then of the replicas that
// went on. Those alone wait for each other from the first hand-over on. Every rank, the simulator
// and the emulation call these with equal arguments and get equal results. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

// Rounds of a replica between two counts of what is left. A count is begun in one of them and read
// at the next, so that no replica waits for another that is at most so many rounds behind.
inline constexpr int64_t kRoundsBetweenTallies = 4;

// What ranks send, in bytes. A count, summed over the ranks of the generation; what all ranks then
// tell each other of the step's samples, summed over the job. Later ones are messages
// (program/hand_over_messages.h). And the messages, at most so many, in which a rank gives a sample
// to its counterpart(): how many tokens its cache has, its new tokens and their log-probs, then the
// cache, if it moves. `cache_bytes`: of a token on the rank.
inline constexpr int64_t kTallyBytes = 8, kMessagesOfSample = 2;
inline int64_t progress_bytes(int64_t samples) { return 8 * samples; }
std::vector<double> moved_sample(int64_t produced, int64_t cached, double cache_bytes);

// The infer calls that read nothing but what data and the generation give.
std::vector<CallId> reading_given(const Graph& graph, CallId generate);
// Those of them that may begin with the samples that have finished: sample by sample, and the ranks
// of one data-parallel rank need no other's.
std::vector<CallId> early_scorers(const Graph& graph, CallId generate,
                                  const std::vector<CallPlacement>& calls);

// How far a sample of the step is.
struct SampleProgress {
  int64_t prompt = 0;    // tokens
  int64_t produced = 0;  // new ones
  bool finished = false;
  int64_t predicted = 0;  // new ones when it will have finished; 0: nobody has said
  // The replica that was chosen ahead to go on with it (program/pre_copy.h), -1: none was; and the
  // first tokens of its cache that are there.
  int32_t chosen = -1;
  int64_t copied = 0;
  friend bool operator==(const SampleProgress&, const SampleProgress&) = default;
};

// Of that in one number, not 0: new tokens, and whether it has finished.
inline int64_t told_of(const SampleProgress& sample) {
  return sample.finished ? sample.produced + 1 : -sample.produced - 1;
}
inline void hear(int64_t told, SampleProgress* sample) {
  sample->produced = (told < 0 ? -told : told) - 1;
  sample->finished = told > 0;
}

// What a replica goes on with at most: sequences that it decodes at a time (0: any number), tokens
// of its cache (0: enough), new tokens of a sample.
struct ReplicaLimits {
  int64_t sequences = 0, cache_tokens = 0, longest_response = 0;
};

// The limits of an engine, and at most `most` sequences; 0: as many as a replica has at the begin
// of the step, with which a token takes no longer than it did.
ReplicaLimits going_on(ReplicaLimits engine, int64_t samples, int64_t replicas, int64_t most = 0);

// A sample that another replica goes on with.
struct SampleMove {
  int32_t row = 0;
  int32_t from = 0, to = 0;  // replicas
  int64_t copied = 0;        // first tokens of its cache that are there already
  friend bool operator==(const SampleMove&, const SampleMove&) = default;
};

struct HandOver {
  std::vector<bool> goes_on;         // by replica
  std::vector<SampleMove> moves;     // by row
  SampleRows early, late;            // what has finished, and what has not
  std::vector<int64_t> produced;     // of these: new tokens so far
  std::vector<SampleRows> finished;  // by replica: what it has generated
  std::vector<SampleRows> left;      // by replica: what it generates from here on
  friend bool operator==(const HandOver&, const HandOver&) = default;
};

// As few replicas go on as have room for what is left: max(ceil(R / sequences), ceil(tokens that R
// samples may come to / tokens of a cache)) of R samples. They are those with the most samples left
// (of equally many the first), so that the fewest move; a sample goes to the one that has least to
// do, the one with the most tokens left first (as predicted, else the one with the fewest new
// ones). Replicas that were chosen ahead come before others, and samples go to the one that was
// chosen for them while it has room. `owned`: the rows of each replica that are not handed over as
// finished yet; `among`: the replicas that went on so far, none said: all; `most`: as many go on as
// if at most so many samples were left.
HandOver hand_over(const std::vector<SampleProgress>& samples, const std::vector<SampleRows>& owned,
                   const ReplicaLimits& limits, const std::vector<bool>& among = {},
                   int64_t most = INT64_MAX);

// What each replica has generated, by replica: before a hand-over of the step and since the one
// before it, from the last one on, or in all. REQUIRES: the part has begun.
std::vector<SampleRows> generated_rows(const std::vector<HandOver>& handed, SamplePart part);
// The rank of a replica that has the place which `rank` has in its own: both hold the same of a
// cache. REQUIRES: the rank generates.
DeviceId counterpart(const CallPlacement& generate, DeviceId rank, int32_t replica);
// The ranks of the replicas that go on; and of one the rank that speaks for it.
std::vector<DeviceId> ranks_going_on(const CallPlacement& generate, const HandOver& handed);
DeviceId speaker_of(const CallPlacement& generate, int32_t replica);

// Whether a data-parallel rank of a scorer has no rank that generates on, [hand-over][rank].
using FreeRanks = std::vector<std::vector<bool>>;
FreeRanks free_ranks(const CallPlacement& scorer, const CallPlacement& generate,
                     const std::vector<HandOver>& handed);

// What a scorer does in a part of its samples: with those that had finished at a hand-over, on its
// ranks that were free by then, and in the last part with all others, on all; each has all
// data-parallel ranks. What finished while it had no free rank is of the last part.
Partition partition_scored(const std::vector<PartitionSample>& samples, const Strategy& strategy,
                           const PartitionOptions& options, const FreeRanks& free,
                           const std::vector<HandOver>& handed, SamplePart part);
// The rows of the last part, ascending.
SampleRows scored_last(const FreeRanks& free, const std::vector<HandOver>& handed);
// What a scorer does with some rows on all of its ranks.
Partition partition_rows(const std::vector<PartitionSample>& samples, const SampleRows& rows,
                         const Strategy& strategy, const PartitionOptions& options);
// What ranks own of several parts; without mini-batches.
Partition joined(const std::vector<Partition>& parts);

}  // namespace braid::inline program

// What-if: samples that a hand-over leaves are scored while they are still generated, up to a token
// (SimOptions::scored_prefixes). Which tokens, by which ranks, and what that makes of the parts of
// a call. Pure; thread-safe.
#pragma once

#include <vector>

#include "program/call_parts.h"
#include "sim/hand_over_prices.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// What of its samples a call scores in a part: nothing unusual, the beginnings of those that are
// left beside what has finished, or what is after these.
enum class PrefixPart { kNone, kBeginnings, kRest };
// REQUIRES: the program hands its generation over.
PrefixPart prefix_part(const Program& program, SamplePart part);

// How a call scores beginnings, and how many tokens of each sample; 0: the sample was whole when it
// was first looked at.
struct CallPrefixes {
  ScoredPrefixes how = ScoredPrefixes::kNone;
  const std::vector<int64_t>& tokens;
};

// CallPrefixes::tokens of a call with these samples; none where behind some hand-over no rank of it
// is free. The row of a sample's last token so far, which predicts the next, is of the rest.
std::vector<int64_t> prefixes_scored(ScoredPrefixes how,
                                     const std::vector<PartitionSample>& samples,
                                     const std::vector<PricedHandOver>& handed,
                                     const FreeRanks& free);

// The samples with what a part scores of them.
std::vector<PartitionSample> samples_of_part(std::vector<PartitionSample> samples,
                                             const std::vector<int64_t>& prefixes, PrefixPart part);
// What comes before the rest is seen by its tokens.
void add_prefixes(const SampleRows& rows, const std::vector<int64_t>& prefixes,
                  std::vector<PackedLength>* lengths);

// What a part of the call has in place of `plain`, its partition_part(). Beginnings are scored
// behind what has finished, in micro-batches of their own; the ranks that have their keys and
// values score the rest.
Partition partition_with_prefixes(const Program& program, const PartitionedCall& call,
                                  SamplePart part, const StepParts& step,
                                  const CallPrefixes& prefixes, Partition plain);

}  // namespace braid::inline sim

// Scoring of samples while they are still generated (fusion.scored_prefixes): what a model says of
// the beginning of a sample does not depend on what follows. Ranks that are free when a generation
// is handed over for the last time score what there is of the samples that are left, behind what
// has finished, and keep keys and values; the same ranks score the rest when the samples have
// ended. Every rank, the simulator and the emulation call these with equal arguments and get equal
// results. Pure; thread-safe.
#pragma once

#include <vector>

#include "program/hand_over.h"
#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

// The tokens so far of samples that are left, which the replicas of a generation give to those who
// score beginnings and to nobody else: no call of a graph writes it.
inline constexpr const char* kBegunIds = "begun_ids";
inline constexpr const char* kBegunLens = "begun_lens";
Field begun_field();

// Whether a call scores beginnings: one that says something of each token, not under
// sequence_parallel, whose passes over caches have other rows, and not beside an update, whose
// order its samples have.
bool scores_beginnings(const Program& program, CallId call);
// That some call does; else an error that names the key.
Status check_beginnings(const Program& program);
// The part of a generation in which what it goes on with is begun by scorers: its last hand-over.
SamplePart begun_part(const Program& program);

// What of its samples a call scores in a part: nothing unusual, the beginnings of those that are
// left beside what has finished, or what is after these.
enum class PrefixPart { kNone, kBeginnings, kRest };
PrefixPart prefix_part(const Program& program, CallId call, SamplePart part);

// How many tokens of each sample are scored ahead of the others, by row; 0: none. Empty: no sample
// is, since behind some hand-over no rank of the call is free. The row of a sample's last token so
// far, which predicts the next, is of the rest.
std::vector<int64_t> prefixes_scored(const Program& program, CallId call,
                                     const std::vector<PartitionSample>& samples,
                                     const std::vector<HandOver>& handed);

// The samples with what a part scores of them: prompt and response that are not scored in it have
// no tokens.
std::vector<PartitionSample> samples_of_part(std::vector<PartitionSample> samples,
                                             const std::vector<int64_t>& prefixes, PrefixPart part);
// What comes before the rest is seen by its tokens.
void add_prefixes(const SampleRows& rows, const std::vector<int64_t>& prefixes,
                  std::vector<PackedLength>* lengths);
// Whether a micro-batch reads or writes caches: each of its samples is scored in two parts. Such
// samples share no prompts.
bool is_cached(const SampleRows& rows, const std::vector<int64_t>& prefixes);

// The beginnings of what is left, in micro-batches of their own, on ranks that are free behind the
// last hand-over.
Partition partition_beginnings(const std::vector<PartitionSample>& samples,
                               const std::vector<int64_t>& prefixes, const Strategy& strategy,
                               PartitionOptions options, const FreeRanks& free,
                               std::vector<HandOver> handed, SamplePart part);
// `plain` with these behind it.
Partition with_beginnings(Partition plain, const Partition& begun);
// What the ranks that have these beginnings, [dp rank], score at the end: in micro-batches of as
// many tokens, beginnings included, as those of whole samples, since caches have all of them.
Partition partition_rest(const std::vector<SampleRows>& begun,
                         const std::vector<PartitionSample>& samples,
                         const std::vector<int64_t>& prefixes, const Strategy& strategy,
                         PartitionOptions options);
// The rows of which each data-parallel rank needs what a part of a call reads.
std::vector<SampleRows> rows_read(const Partition& partition);

}  // namespace braid::inline program

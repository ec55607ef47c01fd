// An update that begins while calls still score the samples of its later mini-batches. Which
// samples a mini-batch has is a permutation of the step's, which is known when they have been
// generated. So calls that score on other devices than the update's go through the samples in
// parts, in the order of its mini-batches, and it waits for each part where it comes to it. Every
// rank, the simulator and the emulation call these with equal arguments and get equal results.
// Pure; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "program/hand_over.h"
#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

inline constexpr int64_t kMostPartsOfUpdate = 100;

// The update of the graph that can begin when `minibatches` of those of an epoch, `all`, are
// scored, and who scores the rest beside it, as many at a time: infer calls that read nothing but
// what data and the generation give, sample by sample, without meetings inside of their passes;
// that score as many samples as it learns from, on devices that it does not use; and whose results
// it alone reads. The error names the key and, of each call that scores, why not.
Result<EarlyUpdate> early_update(const Program& program, int64_t minibatches, int64_t all);

// Whether a call of the graph could score beside an update, on devices of its own.
bool may_score_beside_update(const Graph& graph);

// Whether a call is such an update, or scores beside one.
inline bool begins_early(const Program& program, CallId call) {
  return program.early_update.is_on() && program.early_update.update == call;
}
bool scores_beside(const Program& program, CallId call);

// The parts of a scorer that an update waits for before a part of its own, and not before those in
// front of it. Of the first: with all that the scorer has made of a generation that was handed
// over.
std::vector<SamplePart> parts_scored_for(const Program& program, CallId scorer, SamplePart part);
// Of what one call writes and another reads: the parts of the producer whose results an exchange
// brings, and none before it.
std::vector<SamplePart> parts_given(const Program& program, const Exchange& exchange);
// Of what one call writes and another reads: the part whose exchange a part of the reader needs.
SamplePart exchanged_part(const Program& program, CallId producer, CallId reader, SamplePart part);

// The rows that are scored in each part, ascending, [part]: of the update's mini-batches those that
// no part before has; in the last part all others of so many samples.
std::vector<SampleRows> scored_in_parts(const std::vector<SampleRows>& minibatches,
                                        const EarlyUpdate& early, int64_t samples);
// The mini-batches of an update that a part of its samples has.
Partition part_of_update(const Partition& whole, const EarlyUpdate& early, SamplePart part);
// The mini-batch before which a part of an update ends; none: it is the last part.
std::optional<size_t> end_of_part(const EarlyUpdate& early, SamplePart part);

// Of a list: the parts of a call come in order. Of the program: its update and its scorers are
// those of early_update().
Status verify_parts(const std::vector<Instruction>& list);
Status verify_early_update(const Program& program);

}  // namespace braid::inline program

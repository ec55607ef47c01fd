// Which samples the parts of a call have (SamplePart), where it runs in parts: its generation is
// handed over (program/hand_over.h), an update begins early (program/early_update.h), or both: then
// what had finished at a hand-over is scored at once, in no order of the update's. Every
// rank, the simulator and the emulation call these with equal arguments and get equal results.
// Pure; thread-safe.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "program/early_update.h"
#include "program/hand_over.h"

namespace braid::inline program {

// What decides it in a step.
struct StepParts {
  std::vector<HandOver> handed;  // once the generation was
  // Rows that are scored in each part, [part], where an update begins early; and whether samples
  // were dropped since, so that the update's mini-batches are others.
  std::vector<SampleRows> scored;
  bool permuted_anew = false;
  // Of an update that begins beside the generation: all of its samples are of its last part, since
  // some were dropped; or that has those of the parts before it again, where each rank has them,
  // since memory ran out.
  bool at_once = false, again = false;
  // Of calls that had begun when samples were dropped: the rows that each data-parallel rank was
  // given, which stay where they are, [call, part][dp rank].
  std::map<std::pair<CallId, SamplePart>, std::vector<SampleRows>> given = {};
};

// What is left of it where samples that are not marked were dropped: rows have new numbers.
StepParts retained(StepParts step, const std::vector<bool>& kept);

// What a call makes of its samples.
struct PartitionedCall {
  CallId call;
  const std::vector<PartitionSample>& samples;
  const Strategy& strategy;
  PartitionOptions options;
};

// StepParts::scored of so many samples. REQUIRES: an update of the program begins early, this one.
std::vector<SampleRows> scored_in_parts(const Program& program, const PartitionedCall& update,
                                        int64_t samples);
// The samples of a part on all data-parallel ranks of the call. `whole`: partition_samples() of an
// update that runs in parts, where it is known. REQUIRES: the call runs in parts, and what decides
// this part is known: of a hand-over what it told, of the last part what all did.
Partition partition_part(const Program& program, const PartitionedCall& call, SamplePart part,
                         const StepParts& step, const Partition* whole = nullptr);

}  // namespace braid::inline program

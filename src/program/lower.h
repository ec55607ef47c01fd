// The body of a call as instructions, the same for every layout. Pure.
#pragma once

#include <array>
#include <vector>

#include "program/exchange.h"

namespace braid::inline program {

// The instructions that one call becomes on each of its ranks, without what they wait for: of all
// samples, or of a part of them; `handed`: after which a generation is handed over, or without an
// optimizer step.
std::vector<Instruction> lower(const Call& call, CallId id, SamplePart part = SamplePart::kAll,
                               bool handed = false);

// When the region of a generation ends, and what it repeats.
ExitCondition generation_exit(const Call& call, bool handed);
std::vector<OpKind> generation_body(bool handed);
// Likewise of a training call; `handed`: its gradients wait for those of another part.
std::vector<OpKind> training_body(bool handed);

// Whether all ranks of a generation count together what is left of it: until it is handed over.
// Those that went on count by messages among them (program/hand_over_messages.h), whom no list
// knows: the instruction names no group then.
constexpr bool counts_together(SamplePart part) { return part == SamplePart::kEarly; }

// Where a kind of instruction stands in a region: those of a lower phase come first, of all of its
// calls. Updated weights come back to all who hold them before another call's update.
int region_phase(OpKind kind);

// The region of two training calls whose passes are fused by entry `fused` of the program's, from
// the region of each: both are open while one instruction executes the passes of both; then kind by
// kind what each makes of its gradients.
std::vector<Instruction> fuse_regions(const std::array<std::vector<Instruction>, 2>& regions,
                                      int32_t fused);

// The entry of a call's share among these ranks, added to the program's.
int32_t add_share(CallId id, std::vector<DeviceId> members, Program* program);

}  // namespace braid::inline program

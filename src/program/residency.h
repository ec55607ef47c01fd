// State that rests in host memory between its uses: in which pieces weights come back where a plan
// prefetches them, and what of a pass waits for which piece. Pure; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "program/op.h"
#include "program/program.h"

namespace braid::inline program {

// Layers whose weights come from the host together, in the order in which passes use them: at most
// kLoadRuns pieces where the device has one virtual pipeline stage, at least one of each that it
// has. REQUIRES: the layout has the device.
inline constexpr int64_t kLoadRuns = 8;
std::vector<Interval> load_runs(const ParamLayout& layout, int64_t layers, DeviceId device);

// The share of a pass of the body that is computed before it comes to the first of these layers;
// none where it has none of them.
std::optional<double> share_before(const OpBody& body, const Interval& layers);

// Of a rank's list: state that rests on the host is loaded when it is away, each layer once,
// offloaded when it is there and at the latest at the end, and every call, message and offload that
// uses it waits for the loads that bring it. The error names the instruction.
Status verify_residency(const Program& program, size_t rank);

}  // namespace braid::inline program

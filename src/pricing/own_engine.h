// Efficiencies of steps that Braid's own runtime runs. Its passes are measured by `braid profile`
// as they run in a step, so the factors that published RL steps of other frameworks were fitted to
// (for their controllers, engines that are woken and weights that are copied between them) do not
// apply. Pure; thread-safe.
#pragma once

#include "cluster/gpu.h"
#include "pricing/efficiency.h"

namespace braid::inline pricing {

// Rows of a round of generation that are worth a pass of their own through a stage: a pass of few
// rows takes as long as reading the weights, however few they are. Changes speed alone.
inline constexpr int kRowsOfPass = 16;

// Sets what is known of the device where Braid's runtime is the engine: that is, where
// calibration.own_engine says so, `braid profile` measured the device or it is a processor, and
// `engine` names no other. Else leaves everything as it is.
void take_own_engine(const Calibration& calibration, const GpuSpec& gpu, const std::string& engine,
                     Efficiency* efficiency);

}  // namespace braid::inline pricing

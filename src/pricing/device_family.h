// What kernels reach on a device, as devices of one architecture have it in common. Measurements
// cover some devices only, and their fits differ by chance. So for plans
//   * a device that a knob was not fitted for takes the offset of the device of its architecture
//     that is most like it, and
//   * a device reaches at least what any measured device of its architecture reaches that is better
//     in no number: a device that is no better in any number is never faster, and
//   * where Braid's own runtime is the engine, what is known of it (pricing/own_engine.h) counts.
// Pure; thread-safe.
#pragma once

#include "cluster/gpu.h"
#include "pricing/efficiency.h"

namespace braid::inline pricing {

// resolve_efficiency() of a device with the rules above.
Efficiency family_efficiency(const Calibration& calibration, const GpuSpec& gpu,
                             Precision precision, const std::string& engine);

}  // namespace braid::inline pricing

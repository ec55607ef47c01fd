// Efficiencies inside RL steps. Pure values; thread-safe.
#pragma once

#include <string>

#include "pricing/compute.h"
#include "pricing/device_family.h"

namespace braid::inline pricing {

// Of work inside an RL step whose responses rl_engine generates. Measured RL steps are filed under
// the engine that generates, so the knobs that are fitted to them (FitStage::kRl) are looked up
// under it, all others under key.engine. "": all under key.engine.
Efficiency resolve_efficiency(const Calibration& calibration, const EfficiencyKey& key,
                              const std::string& rl_engine);

// The same with what devices of one architecture have in common (pricing/device_family.h).
Efficiency family_efficiency(const Calibration& calibration, const GpuSpec& gpu,
                             Precision precision, const std::string& engine,
                             const std::string& rl_engine);

// make_device() with these efficiencies.
Result<DeviceModel> make_device(const GpuSpec& gpu, Precision precision, const std::string& engine,
                                const Calibration& calibration, const std::string& rl_engine);

}  // namespace braid::inline pricing

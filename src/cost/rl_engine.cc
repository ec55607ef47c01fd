#include "cost/rl_engine.h"

namespace braid {

Efficiency resolve_efficiency(const Calibration& calibration, const EfficiencyKey& key,
                              const std::string& rl_engine) {
  Efficiency efficiency = resolve_efficiency(calibration, key);
  if (rl_engine.empty()) return efficiency;
  EfficiencyKey rl_key = key;
  rl_key.engine = rl_engine;
  const Efficiency of_rl = resolve_efficiency(calibration, rl_key);
  for (const Knob& knob : knobs())
    if (knob.stage == FitStage::kRl) efficiency.*knob.member = of_rl.*knob.member;
  return efficiency;
}

Result<DeviceModel> make_device(const GpuSpec& gpu, Precision precision, const std::string& engine,
                                const Calibration& calibration, const std::string& rl_engine) {
  BRAID_ASSIGN(DeviceModel device, make_device(gpu, precision, engine, calibration));
  device.efficiency =
      resolve_efficiency(calibration, efficiency_key(gpu, precision, engine), rl_engine);
  return device;
}

}  // namespace braid

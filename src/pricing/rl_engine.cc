#include "pricing/rl_engine.h"

namespace braid::inline pricing {

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

Efficiency family_efficiency(const Calibration& calibration, const GpuSpec& gpu,
                             Precision precision, const std::string& engine,
                             const std::string& rl_engine) {
  Efficiency efficiency = family_efficiency(calibration, gpu, precision, engine);
  if (rl_engine.empty()) return efficiency;
  const Efficiency of_rl = family_efficiency(calibration, gpu, precision, rl_engine);
  for (const Knob& knob : knobs())
    if (knob.stage == FitStage::kRl) efficiency.*knob.member = of_rl.*knob.member;
  return efficiency;
}

Result<DeviceModel> make_device(const GpuSpec& gpu, Precision precision, const std::string& engine,
                                const Calibration& calibration, const std::string& rl_engine) {
  BRAID_ASSIGN(DeviceModel device, make_device(gpu, precision, engine, calibration));
  device.efficiency = family_efficiency(calibration, gpu, precision, engine, rl_engine);
  return device;
}

}  // namespace braid::inline pricing

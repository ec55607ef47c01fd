#include "pricing/own_engine.h"

#include <utility>

namespace braid::inline pricing {
namespace {

constexpr const char* kOwnEngine = "braid";

// The calls of a step are the passes that a profile measures: nothing is lost between them, and
// what communicates is waited for where it stands.
constexpr std::pair<double Efficiency::*, double> kOwnValues[] = {
    {&Efficiency::rl_train_factor, 1},    {&Efficiency::rl_infer_factor, 1},
    {&Efficiency::rl_generate_factor, 1}, {&Efficiency::rl_step_host_s, 0},
    {&Efficiency::step_host_s, 0},        {&Efficiency::tp_exposed, 1},
    {&Efficiency::cp_exposed, 1},         {&Efficiency::ep_exposed, 1},
    {&Efficiency::pp_exposed, 1},         {&Efficiency::dp_exposed, 1},
    {&Efficiency::fsdp_exposed, 1},       {&Efficiency::pipeline_jitter, 0},
    {&Efficiency::decode_fill, 1},        {&Efficiency::decode_batch_rows, kRowsOfPass},
};

// Memory of processes on a processor: tensors are counted, and main gradients are in f32.
constexpr std::pair<double Efficiency::*, double> kHostMemory[] = {
    {&Efficiency::mem_gradient_bytes, 4},
    {&Efficiency::mem_reserve_factor, 1},
    {&Efficiency::mem_fixed_gib, 0},
    {&Efficiency::mem_context_gib, 0},
};

const Profile* profile_of(const Calibration& calibration, const GpuSpec& gpu) {
  const Profile* out = nullptr;
  for (const Profile& profile : calibration.profiles)
    if (profile.gpu.key == gpu.key && profile.engine == kOwnEngine) out = &profile;
  return out;
}

}  // namespace

void take_own_engine(const Calibration& calibration, const GpuSpec& gpu, const std::string& engine,
                     Efficiency* efficiency) {
  if (!engine.empty() && engine != kOwnEngine) return;
  const Profile* profile = profile_of(calibration, gpu);
  const bool processor = gpu.architecture == "cpu";  // other engines do not run there
  if (!calibration.own_engine && profile == nullptr && !processor) return;
  for (const auto& [member, value] : kOwnValues) efficiency->*member = value;
  if (processor)
    for (const auto& [member, value] : kHostMemory) efficiency->*member = value;
  const auto take = [&](const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values)
      if (const Knob* const knob = find_knob(name)) efficiency->*knob->member = value;
  };
  if (profile != nullptr) take(profile->efficiencies);
  take(calibration.own_values);
}

}  // namespace braid::inline pricing

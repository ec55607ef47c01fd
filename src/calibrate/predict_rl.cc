#include "calibrate/predict_rl.h"

#include <algorithm>
#include <cmath>

namespace braid::inline calibrate {
namespace {

double update_s(const ModelSize& model, const RlWork& work, const DeviceModel& device) {
  const double updates =
      work.mini_batch > 0 ? std::max(1.0, work.train.global_batch / work.mini_batch) : 1;
  TrainStepWork each = work.train;
  each.global_batch = work.train.global_batch / updates;
  return updates * train_step_time(model, work.train_layout, each, device).total_s *
         device.efficiency.rl_train_factor;
}

// Every node takes part in moving the weights to the engine, but not in proportion: measured times
// grow with size and fall about with the square root of the nodes.
double reshard_s(const ModelSize& model, const RlWork& work, const DeviceModel& device) {
  if (work.training_engine_generates) return 0;
  const TrainLayout& layout = work.train_layout;
  const double devices = layout.dp * layout.tp * layout.pp * layout.cp;
  const double nodes = std::max(1.0, devices / layout.gpus_per_node);
  const double bytes = static_cast<double>(total_params(model)) * work.generate_layout.weight_bytes;
  return bytes / (device.efficiency.rl_reshard_gbytes_per_s * 1e9 * std::sqrt(nodes));
}

// Devices that both train and generate also put the training states away and the engine to sleep,
// in turn.
double switch_s(const ModelSize& model, const RlWork& work, const DeviceModel& device) {
  constexpr double kStateBytes = 16;
  if (work.placement != RlPlacement::kColocated || work.training_engine_generates) return 0;
  const TrainLayout& layout = work.train_layout;
  const double devices = layout.dp * layout.tp * layout.pp * layout.cp;
  return device.efficiency.rl_switch_factor * reshard_s(model, work, device) +
         2 * host_copy_s(kStateBytes * static_cast<double>(total_params(model)) / devices, device);
}

double combined_s(const RlTime& time, RlPlacement placement) {
  const double learn = time.logprob_s + time.critic_s + time.train_s;
  const double fixed = time.reshard_s + time.host_s;
  switch (placement) {
    case RlPlacement::kColocated:
      return time.generate_s + learn + fixed;
    case RlPlacement::kSplit:
      return time.generate_s + std::max(time.logprob_s + time.train_s, time.critic_s) + fixed;
    case RlPlacement::kOneStepOff:
      return std::max(time.generate_s, learn) + fixed;
    case RlPlacement::kAsync:
      return std::max(time.generate_s, learn) + time.host_s;
  }
  return 0;
}

}  // namespace

Result<RlTime> rl_step_time(const ModelSize& actor, const ModelSize* critic, const RlWork& work,
                            const DeviceModel& train_device, const DeviceModel& generate_device) {
  const Efficiency& e = train_device.efficiency;
  GenerateWork generate = work.generate;
  generate.length_spread = generate.max_output_len > generate.output_len ? e.length_spread : 0;
  BRAID_ASSIGN(const GenerateTime rollout,
               generate_time(actor, generate, work.generate_layout, generate_device));
  RlTime time;
  time.generate_s = rollout.total_s * e.rl_generate_factor *
                    (work.training_engine_generates ? e.stage3_generate_factor : 1);
  const double pass =
      inference_pass_s(actor, work.train_layout, work.train, train_device) * e.rl_infer_factor;
  time.logprob_s = work.logprob_passes * pass;
  time.train_s = update_s(actor, work, train_device);
  if (critic != nullptr)
    time.critic_s = update_s(*critic, work, train_device) +
                    2 * inference_pass_s(*critic, work.train_layout, work.train, train_device) *
                        e.rl_infer_factor;
  time.reshard_s = reshard_s(actor, work, train_device) + switch_s(actor, work, train_device);
  time.host_s = e.rl_step_host_s;
  time.total_s = combined_s(time, work.placement);
  return time;
}

}  // namespace braid::inline calibrate

// The time of one training step under a parallel layout, composed from the prices of layers and
// collectives: pipelined micro-batches, tensor, context and expert parallel exchanges, gradient
// reduction, ZeRO/FSDP gathers, optimizer. A closed form for validation and for pruning; the
// simulator composes the same prices instruction by instruction. Pure.
#pragma once

#include "pricing/collective.h"
#include "pricing/compute.h"

namespace braid::inline pricing {

// What a measurement says about activation checkpointing; a plan always says it
// (plan/execution_plan.h).
enum class StatedRecompute { kNone, kSelective, kFull, kUnknown };

struct TrainLayout {
  int dp = 1, tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1;
  int zero_stage = 1;  // 0..3; 2 and 3 as FSDP
  int gpus_per_node = 1;
  double nic_gbps_per_gpu = 0;  // 0: the device's default
  bool sequence_parallel = true;
  friend bool operator==(const TrainLayout&, const TrainLayout&) = default;
};

struct TrainStepWork {
  double micro_batch = 1;   // sequences
  double global_batch = 1;  // sequences per optimizer step
  double seq_len = 0;       // tokens
  StatedRecompute recompute = StatedRecompute::kNone;
  double lora_rank = 0;      // of adapters on every linear layer; 0: all weights are trained
  bool policy_loss = false;  // loss of a policy-gradient method in an engine where it costs extra
  bool fused = true;         // compiled or hand-fused element-wise kernels
  bool graphs = true;        // see LayerPass
  bool loops_experts = false;
  double reduce_bytes = 4;      // per gradient in the reduction
  bool offload_states = false;  // weights, gradients and optimizer states stay in host memory
  friend bool operator==(const TrainStepWork&, const TrainStepWork&) = default;
};

// Seconds per step, by where they go; total_s is their sum.
struct TrainTime {
  double compute_s = 0;   // of the slowest stage, all micro-batches
  double bubble_s = 0;    // pipeline fill and drain
  double exchange_s = 0;  // exposed tensor, context, expert and pipeline communication
  double gradient_s = 0;  // exposed reduction and gathers
  double optimizer_s = 0;
  double host_s = 0;
  double total_s = 0;
};

// Errors name the rule that layout and work break: sizes that do not divide, an empty micro-batch.
Status validate_train(const ModelSize& model, const TrainLayout& layout, const TrainStepWork& work);
// REQUIRES: validate_train() accepts the arguments.
TrainTime train_step_time(const ModelSize& model, const TrainLayout& layout,
                          const TrainStepWork& work, const DeviceModel& device);

// Seconds of one inference pass (log-probabilities) over `sequences` with the same layout: forward
// only, pipelined.
double inference_pass_s(const ModelSize& model, const TrainLayout& layout,
                        const TrainStepWork& work, const DeviceModel& device);

}  // namespace braid::inline pricing

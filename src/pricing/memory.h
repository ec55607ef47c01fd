// Peak memory of one device: weights, gradients, optimizer states, activations, logits, gathered
// blocks, KV cache and what the framework takes. Activation counts follow Korthikanti et al. (arXiv
// 2205.05198, section 4), written out for gated MLPs, grouped-query attention and attention kernels
// that keep no score matrix. Pure; thread-safe.
#pragma once

#include <string>

#include "pricing/predict_generate.h"
#include "pricing/predict_train.h"
#include "pricing/widths.h"

namespace braid::inline pricing {

// Bytes per parameter that training keeps, from the description of an optimizer.
struct OptimizerMemory {
  double weight_bytes = 2;  // copy that passes compute with
  double state_bytes = kMasterAndMoments;
  double gradient_bytes = 0;  // 0: the engine's habit, mem_gradient_bytes
  double lora_rank = 0;       // 0: all weights are trained
  friend bool operator==(const OptimizerMemory&, const OptimizerMemory&) = default;
};
// Reads "adamw, 32-bit master weights and states", "adamw on adapters (rank 8, all linear), 16-bit"
// and the like. Errors: a text that says neither widths nor adapters.
Result<OptimizerMemory> parse_optimizer_memory(const std::string& text);
// The rank that a description of adapters states; 16, the usual one, where it states none.
double adapter_rank(const std::string& optimizer);

// The parts of a peak, in bytes of one device; peak() combines those that are alive together.
struct MemoryParts {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double logits = 0;
  double gathered = 0;  // blocks that FSDP and ZeRO-3 hold unsharded
  double kv_cache = 0;
  double step_buffers = 0;  // temporaries of the optimizer step, when activations are gone
  double fixed = 0;         // workspaces and communication buffers
};
double peak_bytes(const MemoryParts& parts);

struct TrainMemoryWork {
  OptimizerMemory optimizer;
  bool eager = false;            // operator by operator: more saved tensors, unfused loss
  bool fused_loss = false;       // logits are computed in chunks
  bool policy_loss = false;      // of a policy-gradient method
  bool keeps_gathered = false;   // sharded weights stay whole through a pass
  bool sharded_buffers = false;  // ZeRO of DeepSpeed: fixed buckets
  bool offload_states = false;   // weights, gradients and optimizer live in host memory
  bool offload_optimizer = false;
  bool offload_activations = false;
  friend bool operator==(const TrainMemoryWork&, const TrainMemoryWork&) = default;
};

// The fullest pipeline stage of a training step: the first, with the most micro-batches in flight,
// or the last, with the logits.
MemoryParts train_memory(const ModelSize& model, const TrainLayout& layout,
                         const TrainStepWork& work, const TrainMemoryWork& memory,
                         const Efficiency& efficiency);
// A generation job that allocates as it goes, with `work.concurrency` sequences at their full
// length.
MemoryParts generate_memory(const ModelSize& model, const GenerateLayout& layout,
                            const GenerateWork& work, const Efficiency& efficiency);

// Bytes that one token's pass through one layer leaves for the backward pass, of one
// tensor-parallel part, with activations of `width` bytes.
double activation_bytes_per_token(const ModelSize& model, LayerKind kind, int tp,
                                  bool sequence_parallel, double width = 2);

// What a tool would report for a peak: live tensors, the allocator's reserve, or the whole process.
enum class MemoryReading { kAllocated, kReserved, kProcess, kUnstated };
double reported_bytes(double peak, MemoryReading reading, const Efficiency& efficiency);

enum class Fit { kYes, kNo, kUncertain };
const char* fit_name(Fit fit);
// Whether a peak fits beside the context of the framework; uncertain within 5 % of the limit.
Fit judge_fit(double peak, double hbm_bytes, const Efficiency& efficiency);
// Bytes that a process may use of a device.
double usable_bytes(double hbm_bytes, const Efficiency& efficiency);

}  // namespace braid::inline pricing

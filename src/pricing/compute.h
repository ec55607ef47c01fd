// Prices of computation on one device: passes of a layer and of the head, the
// optimizer step, one decode step. A roofline: GEMMs at a calibrated share of the peak
// that falls with narrow shapes, score GEMMs at their own share, activations at a share of the
// memory bandwidth, and never faster than the host can launch. Where a profile covers an operation,
// its measured time is the price. Pure functions; thread-safe.
// Formulas and sources: docs/cost_model.md.
#pragma once

#include <string>

#include "cluster/gpu.h"
#include "models/size.h"
#include "pricing/collective.h"
#include "pricing/efficiency.h"
#include "pricing/profile.h"

namespace braid::inline pricing {

// A device with what software reaches of it. The profile, where given, outlives the value.
struct DeviceModel {
  GpuSpec gpu;
  Precision precision = Precision::kBf16;  // of GEMMs; where narrower, scores, head and
                                           // activations stay in 16 bit
  Efficiency efficiency;
  const Profile* profile = nullptr;
};

// Device with efficiencies of a calibration and its profile of the device, if it has one; it must
// then outlive the value. Errors: a precision that the device does not have.
Result<DeviceModel> make_device(const GpuSpec& gpu, Precision precision, const std::string& engine,
                                const Calibration& calibration);

enum class LayerKind { kDense, kMoe };

// The part of a layer that a device computes in one pass.
struct LayerPass {
  LayerKind kind = LayerKind::kDense;
  double tokens = 0;   // of the micro-batch on this device, after context parallelism
  double context = 0;  // tokens that one token attends to, mean
  int tp = 1;
  int ep = 1;
  bool sequence_parallel = true;  // activations between tensor-parallel parts are sharded too
  bool frozen = false;            // no weight gradients (LoRA base weights)
  bool fused = true;              // compiled or hand-fused element-wise kernels
  bool graphs = true;          // launched by a compiled or native engine, not operator by operator
  bool loops_experts = false;  // the engine runs experts one after another
};

// Seconds of one forward pass without communication.
double layer_forward_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device);
// Seconds of the backward pass: twice the GEMMs, 2.5 times the scores (FlashAttention-2, arXiv
// 2307.08691, section 3.1: five GEMMs against two), twice the activations; frozen weights need
// half of the GEMMs.
double layer_backward_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device);
// Output head with loss, forward and backward.
double head_forward_s(const ModelSize& model, double tokens, int tp, const DeviceModel& device);
double head_backward_s(const ModelSize& model, double tokens, int tp, bool frozen,
                       const DeviceModel& device);
// Looking up the token embeddings, and adding the gradients to their rows. The rows that a
// micro-batch reads differ, so both are bound by memory.
double embedding_forward_s(const ModelSize& model, double tokens, const DeviceModel& device);
double embedding_backward_s(const ModelSize& model, double tokens, bool frozen,
                            const DeviceModel& device);
// One optimizer step over `parameters` held by this device: reads gradient and states, writes
// states and weights.
double optimizer_s(double parameters, double bytes_per_parameter, const DeviceModel& device);

// Seconds to move bytes between device and host memory, one direction.
double host_copy_s(double bytes, const DeviceModel& device);

// Seconds of a collective among devices of this kind: collective_s(), or as measured where the
// profile has the operation with as many members.
double exchange_s(CollectiveOp op, double bytes, const CollectiveGroup& group,
                  const DeviceModel& device);

// Seconds in which each of `members` ranks adds up its part of as many terms of `bytes`, one after
// another: an addition reads two numbers and writes one.
double additions_s(double bytes, int members, const DeviceModel& device);

// Seconds of one layer's forward pass that wait for other devices: keys and values that travel once
// around the ring of context-parallel ranks (Ring Attention, arXiv 2310.01889, section 3), and
// tokens that go to their experts and back. `tokens` as in LayerPass; 0 for a group of one.
double context_exchange_s(const ModelSize& model, double tokens, int tp,
                          const CollectiveGroup& group, const DeviceModel& device);
double expert_exchange_s(const ModelSize& model, double tokens, int tp,
                         const CollectiveGroup& group, const DeviceModel& device);

// A batch of sequences, each producing one token.
struct DecodeStep {
  double sequences = 1;
  double context = 0;  // tokens in the cache of a sequence, mean
  int tp = 1;
  double weight_bytes = 2;     // per parameter
  double kv_bytes = 2;         // per cached number
  bool graphs = true;          // kernels launched as captured graphs
  bool spans_domains = false;  // the tensor-parallel group reaches over the network
};
// Seconds of one decode step through all layers and the head, tensor-parallel latency and host time
// included: weights at decode_weight_share and cache at decode_kv_share of the memory bandwidth, or
// the GEMMs where the batch is large.
double decode_step_s(const ModelSize& model, const DecodeStep& step, const DeviceModel& device);
// Seconds to process `tokens` prompt tokens of sequences of `length`.
double prefill_s(const ModelSize& model, double tokens, double length, int tp,
                 const DeviceModel& device);

}  // namespace braid::inline pricing

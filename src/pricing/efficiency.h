// What software reaches of what hardware offers: the efficiencies ("knobs") of the cost model, and
// the calibration that holds their fitted values. A knob is a positive number. Its value for a row
// of work is
//   prior x exp(sum of the offsets that apply),
// with offsets for everything, for the architecture, the device, the low precision on that
// architecture, the stack that an engine is built on, the engine (software) and its release.
// Offsets shrink to zero where data are few (hierarchical shrinkage), so an engine or device that
// was never measured gets the value of its architecture and of its stack, or of the average engine
// where its name tells no stack: the documented default. Nothing depends on a single model. Pure
// values; thread-safe.
#pragma once

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "cluster/gpu.h"
#include "pricing/profile.h"

namespace braid::inline pricing {

// Shares are of a published peak, 0..1 in practice. Times in the unit of the name.
struct Efficiency {
  // Compute of training and inference passes.
  double matmul_share = 0;       // large 16-bit matrix multiplications, of the bf16 peak
  double fp8_gain = 0;           // matmul_share in fp8 (of the fp8 peak) over that in bf16
  double fp4_gain = 0;           // the same for fp4
  double matmul_half_width = 0;  // width of a matrix at which multiplication reaches half its share
  double attention_share = 0;    // score and value GEMMs, of the bf16 peak
  double stream_passes =
      0;  // activations read or written per layer and hidden value, forward pass, in 16 bit
  double stream_share = 0;     // memory bandwidth of those passes
  double quantize_passes = 0;  // further passes for casting to a narrow precision
  double eager_host_us = 0;    // the same in engines that launch operator by operator
  double layer_host_us = 0;    // host time to launch one layer's kernels, forward
  double eager_factor = 0;  // stream_passes of uncompiled over compiled code where a source says so
  double selective_share = 0;  // forward work repeated under "selective" recomputation
  double unknown_share = 0;    // the same where a source does not state recomputation
  double lora_factor = 0;      // time of a pass with adapters over one without
  double rl_loss_factor = 0;   // time of a step with a policy loss over one with next-token loss
  double step_host_s = 0;      // fixed time per optimizer step
  double head_factor = 0;      // time of output head and loss over that of its GEMM
  // Mixture of experts.
  double expert_share = 0;        // matmul_share of grouped expert GEMMs over dense ones
  double expert_half_tokens = 0;  // tokens per local expert at which they reach half of that
  double router_passes = 0;       // activations moved per routed token and hidden value for routing
  double expert_loop_us = 0;      // host time per expert where an engine runs experts one by one
  // Exposed shares of communication in training: the part that computation does not hide.
  double tp_exposed = 0;
  double cp_exposed = 0;
  double ep_exposed = 0;
  double pp_exposed = 0;
  double dp_exposed = 0;  // of the exchange once per step; above 1 where casts and late replicas
                          // make it slower than a collective alone
  double fsdp_exposed = 0;
  double pipeline_jitter =
      0;  // extra time per pipeline stage and micro-batch, share of the stage time
  // Collectives.
  double nvlink_ring_share = 0;  // of the NVLink rate, ring algorithms
  double nvls_share = 0;         // of the NVLink rate, in-switch reduction
  double pcie_share = 0;
  double network_share = 0;       // of the NIC rate
  double nvlink_latency_us = 0;   // of one collective inside a node
  double network_latency_us = 0;  // added by going through the network
  double pipeline_fill = 0;       // chunking term, see collective.h
  // Generation.
  double decode_weight_share = 0;  // memory bandwidth when weights are read
  double decode_expert_share = 0;  // of that in grouped expert kernels
  double decode_kv_share = 0;      // memory bandwidth when the KV cache is read
  double decode_matmul_share = 0;  // of the peak, in large decode batches
  double prefill_share = 0;        // of the peak
  double decode_layer_us = 0;      // fixed device time per layer and step
  double decode_host_us = 0;       // host time per step
  double decode_sequence_us = 0;   // host time per step and sequence
  double decode_reduce_us = 0;     // one tensor-parallel all-reduce of a decode step
  double decode_network_us = 0;    // added to it when the group spans nodes
  double eager_layer_us = 0;       // host time per layer and step without captured graphs
  // Rows of each of the batches into which a round of a pipeline is cut, at least, and what fills
  // and drains the pipeline in each round: 0 where a batch's next round begins beside the others.
  double decode_batch_rows = 0;
  double decode_fill = 0;
  // Reinforcement-learning steps.
  double rl_train_factor = 0;          // training inside an RL step over a pre-training step
  double rl_infer_factor = 0;          // log-probability pass over a plain forward pass
  double rl_generate_factor = 0;       // generation inside an RL step over a served one
  double rl_reshard_gbytes_per_s = 0;  // weights brought to the engine, per device
  double rl_switch_factor =
      0;  // the same again, and how often, where training and generation share devices
  double rl_step_host_s = 0;  // data handling, rewards, logging per step
  double length_spread =
      0;  // sigma of the lognormal response length where only mean and limit are stated
  double stage3_generate_factor = 0;  // generation by the training engine with gathered weights
  // Memory.
  double mem_gradient_bytes = 0;  // per parameter, where the optimizer's description does not say
  double mem_fused_factor =
      0;  // activations kept over the count of activation_bytes_per_token, fused kernels
  double mem_eager_factor = 0;     // the same operator by operator
  double mem_selective_share = 0;  // of them under "selective" recomputation
  double mem_unknown_share = 0;    // of them where recomputation is not stated
  double mem_work_layers = 0;  // layers' worth of activations alive while one layer is recomputed
  double mem_work_share = 0;  // of a layer's activations, alive beside those while one is worked on
  double mem_packed_share = 0;  // copies of weights that kernels keep where several passes use them
  double mem_packed_train_share = 0;  // the same in training
  double mem_logit_bytes = 0;         // per token and vocabulary entry, fused loss kernels
  double mem_head_bytes = 0;          // per vocabulary entry, kernels that never hold all logits
  double mem_logit_eager_bytes = 0;   // the same operator by operator
  double mem_step_bytes = 0;          // temporaries per parameter of an eager optimizer step
  double mem_prefill_factor = 0;      // activations of a prefill over those of one layer
  double mem_reserve_factor = 0;      // allocator reserve over live tensors
  double mem_fixed_gib = 0;           // workspaces and communication buffers
  double mem_bucket_gib = 0;          // fixed buckets of sharded optimizers that keep them
  double mem_context_gib = 0;  // driver context, libraries and buffers of the communication library

  friend bool operator==(const Efficiency&, const Efficiency&) = default;
};

// Which rows fit a knob; stages are fitted in this order, later ones with earlier ones fixed.
enum class FitStage { kCollective, kTrain, kGenerate, kRl, kMemory };

struct Knob {
  const char* name;
  double Efficiency::*member;
  FitStage stage;
  double prior;         // value without data
  double spread;        // standard deviation of ln(value / prior) before data; 0: never fitted
  double by_arch;       // standard deviation of the offset of an architecture; 0: none
  double by_gpu;        // of a device within its architecture
  double by_precision;  // of a narrow precision on an architecture
  double by_engine;     // of an engine, and of the stack that engines share
  double by_release;    // of a release of an engine
};
const std::vector<Knob>& knobs();

// "megatron-bridge" of "megatron-bridge-26.02.01": the engine without its release.
std::string engine_family(const std::string& engine);

// Where work runs, as far as efficiencies care.
struct EfficiencyKey {
  std::string architecture, gpu;
  Precision precision = Precision::kBf16;
  std::string engine;  // with release, as in the measurement files; "" = not known
  friend bool operator==(const EfficiencyKey&, const EfficiencyKey&) = default;
};
EfficiencyKey efficiency_key(const GpuSpec& gpu, Precision precision, const std::string& engine);

struct Calibration {
  std::map<std::string, double> offsets;    // "knob" or "knob@level:name" -> ln offset
  std::map<std::string, double> intervals;  // "train_step/seen" -> half width of the 80 % interval
                                            // of ln(measured / predicted)
  std::vector<std::string> engines;         // releases that the fit has seen, sorted
  // Not part of the JSON form: profiles of devices, one for a device's key at most, and whether
  // Braid's runtime runs what is planned where no other engine is named (pricing/own_engine.h).
  std::vector<Profile> profiles;
  bool own_engine = false;
  std::map<std::string, double> own_values;  // of knobs of that runtime, as one run measured them
  friend bool operator==(const Calibration&, const Calibration&) = default;
};
std::ostream& operator<<(std::ostream& out, const Calibration& calibration);

// "megatron", "torch-native" (compiled PyTorch), "torch-eager" (operator by operator) or "server":
// the kernels and habits that engines share, by their names; "" where the name does not tell.
std::string engine_stack(const std::string& engine);

// The offsets' names that apply to a knob under a key, most general first, with their prior
// standard deviations.
struct OffsetTerm {
  std::string name;
  double spread = 0;
};
std::vector<OffsetTerm> offset_terms(const Knob& knob, const EfficiencyKey& key);
Efficiency resolve_efficiency(const Calibration& calibration, const EfficiencyKey& key);
// The knob of a name; null: there is none.
const Knob* find_knob(const std::string& name);

// Whether the fit has seen an engine; not one without a name, which rows of collectives have.
bool engine_is_known(const Calibration& calibration, const std::string& engine);

// Half width of the 80 % interval of ln(measured / predicted) for a kind of measurement, such as
// "rl_step", of an engine that the fit has seen or not; none: nobody measured it.
std::optional<double> interval_half_width(const Calibration& calibration, const std::string& kind,
                                          bool known_engine);

Json calibration_json(const Calibration& calibration);
// Errors name the entry: not a number, not finite, or a knob that does not exist.
Result<Calibration> calibration_from_json(const Json& json);
// The C++ source that builds a calibration into the program (src/pricing/calibration_data.cc).
std::string calibration_source(const Calibration& calibration);
// The committed result of `braid calibrate` on published measurements
// (src/pricing/calibration_data.cc).
const Calibration& committed_calibration();

}  // namespace braid::inline pricing

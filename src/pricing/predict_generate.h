// The time of a generation job under continuous batching, composed from decode steps and prefills:
// concurrency limited by the engine or by memory for the KV cache, mean or lognormal response
// lengths with their tail. Pure; thread-safe.
#pragma once

#include "pricing/compute.h"

namespace braid::inline pricing {

struct GenerateWork {
  double prompt_len = 0;      // tokens, mean
  double output_len = 0;      // tokens, mean
  double max_output_len = 0;  // 0: not limited
  double length_spread = 0;   // sigma of the lognormal response length; 0: all equal
  double requests = 0;        // of the whole job; 0: an endless stream
  double concurrency = 0;     // most sequences in flight over all replicas; 0: as many as fit
  friend bool operator==(const GenerateWork&, const GenerateWork&) = default;
};

struct GenerateLayout {
  int replicas = 1, tp = 1, pp = 1, ep = 1;
  double weight_bytes = 2, kv_bytes = 2;
  bool graphs = true;             // the engine launches captured graphs
  bool pipelines_batches = true;  // with pp, several batches are in flight
  int gpus_per_node = 8;
  double memory_share = 0.9;  // of the device for weights and cache
  friend bool operator==(const GenerateLayout&, const GenerateLayout&) = default;
};

// The most sequences that engines admit per replica when the request does not say (default of vLLM
// and TensorRT-LLM is 256 to 2048; throughput tables use the largest).
inline constexpr double kMostSequences = 2048;

// Tokens of KV cache that fit into one replica beside the weights; below 1 where the weights alone
// do not fit.
double kv_capacity_tokens(const ModelSize& model, const GenerateLayout& layout, const GpuSpec& gpu);
// Sequences in flight per replica: the limits of the job, of memory and of the engine together.
double concurrency_per_replica(const ModelSize& model, const GenerateWork& work,
                               const GenerateLayout& layout, const GpuSpec& gpu);

struct GenerateTime {
  double prefill_s = 0;
  double decode_s = 0;
  double total_s = 0;       // of the job, or of one output_len of steady streaming
  double tokens_per_s = 0;  // output tokens of all replicas
  double sequences = 0;     // in flight per replica
};

// One decode step of an engine of this layout: `sequences` of a replica with `context` tokens each.
DecodeStep decode_step(const GenerateLayout& layout, const DeviceModel& device, double sequences,
                       double context);

// Errors: weights that do not fit, no lengths.
Result<GenerateTime> generate_time(const ModelSize& model, const GenerateWork& work,
                                   const GenerateLayout& layout, const DeviceModel& device);

// Share of responses longer than `tokens` when lengths are lognormal with the given mean before the
// limit is applied.
double longer_share(double tokens, double mean, double spread);

}  // namespace braid::inline pricing

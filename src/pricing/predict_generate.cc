#include "pricing/predict_generate.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "pricing/collective.h"

namespace braid::inline pricing {
DecodeStep decode_step(const GenerateLayout& layout, const DeviceModel& device, double sequences,
                       double context) {
  DecodeStep step;
  const CollectiveGroup group = make_group(device.gpu, layout.tp, 1, layout.gpus_per_node, 0);
  step.spans_domains = group.per_domain < layout.tp;
  step.sequences = sequences;
  step.context = context;
  step.tp = layout.tp;
  step.weight_bytes = layout.weight_bytes;
  step.kv_bytes = layout.kv_bytes;
  step.graphs = layout.graphs;
  return step;
}

namespace {

// With pp stages several batches are in flight where the engine has them. Every stage reads its
// weights once for each batch, so a step takes as long as a batch of that share takes through the
// whole model.
double stages_busy(const GenerateLayout& layout, double sequences) {
  return layout.pipelines_batches ? std::clamp(sequences, 1.0, static_cast<double>(layout.pp)) : 1;
}

// The mean before truncation whose truncated mean is the stated one: E[min(X, limit)] = mean.
double untruncated_mean(double mean, double limit, double spread) {
  if (limit <= 0 || spread <= 0) return mean;
  const auto truncated = [&](double scale) {
    double sum = 0;
    constexpr int kSteps = 64;
    for (int i = 0; i < kSteps; ++i) sum += longer_share((i + 0.5) * limit / kSteps, scale, spread);
    return sum * limit / kSteps;
  };
  double low = mean, high = mean * 64;
  if (truncated(high) < mean) return high;
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    (truncated(middle) < mean ? low : high) = middle;
  }
  return low;
}

// All sequences start together; those still running share each step, so the tail runs in small
// batches.
double tail_decode_s(const ModelSize& model, const GenerateWork& work, const GenerateLayout& layout,
                     const DeviceModel& device, double sequences) {
  constexpr int kSteps = 48;
  const double limit = work.max_output_len > 0 ? work.max_output_len : work.output_len * 8;
  const double mean = untruncated_mean(work.output_len, limit, work.length_spread);
  double seconds = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double at = (i + 0.5) * limit / kSteps;
    const double alive = sequences * longer_share(at, mean, work.length_spread);
    if (alive < 0.5) break;
    seconds +=
        limit / kSteps *
        decode_step_s(
            model, decode_step(layout, device, std::max(alive, 1.0), work.prompt_len + at), device);
  }
  return seconds;
}

double even_decode_s(const ModelSize& model, const GenerateWork& work, const GenerateLayout& layout,
                     const DeviceModel& device, double sequences) {
  const double context = work.prompt_len + work.output_len / 2;
  return work.output_len *
         decode_step_s(model, decode_step(layout, device, sequences, context), device);
}

}  // namespace

double longer_share(double tokens, double mean, double spread) {
  if (spread <= 0) return tokens < mean ? 1 : 0;
  const double mu = std::log(mean) - spread * spread / 2;
  return 0.5 * std::erfc((std::log(tokens) - mu) / (spread * std::sqrt(2.0)));
}

double kv_capacity_tokens(const ModelSize& model, const GenerateLayout& layout,
                          const GpuSpec& gpu) {
  const double devices = layout.tp * layout.pp;
  const double weights = static_cast<double>(total_params(model)) * layout.weight_bytes;
  const double split = static_cast<double>(kv_cache_parts(model, layout.tp) * layout.pp);
  const double free_bytes = gpu.hbm_bytes * layout.memory_share - weights / devices;
  return free_bytes * split / kv_bytes_per_token(model, layout.kv_bytes);
}

double concurrency_per_replica(const ModelSize& model, const GenerateWork& work,
                               const GenerateLayout& layout, const GpuSpec& gpu) {
  const double each = work.prompt_len + work.output_len / 2;
  double sequences = std::min(kMostSequences, kv_capacity_tokens(model, layout, gpu) / each);
  if (work.concurrency > 0) sequences = std::min(sequences, work.concurrency / layout.replicas);
  if (work.requests > 0) sequences = std::min(sequences, work.requests / layout.replicas);
  return std::max(sequences, 1.0);
}

Result<GenerateTime> generate_time(const ModelSize& model, const GenerateWork& work,
                                   const GenerateLayout& layout, const DeviceModel& device) {
  if (work.output_len <= 0) return invalid_input("output_len must be above 0");
  if (kv_capacity_tokens(model, layout, device.gpu) < work.prompt_len + work.output_len)
    return Status(Code::kInfeasible, cat("weights and the cache of one sequence do not fit on ",
                                         layout.tp * layout.pp, " x ", device.gpu.key));
  GenerateTime time;
  time.sequences = concurrency_per_replica(model, work, layout, device.gpu);
  const double requests = work.requests > 0 ? work.requests / layout.replicas : time.sequences;
  const double waves = std::max(1.0, std::ceil(requests / time.sequences - 1e-9));
  const double batch = requests / waves;
  const double busy = stages_busy(layout, batch);
  const double decode = work.length_spread > 0
                            ? tail_decode_s(model, work, layout, device, batch / busy)
                            : even_decode_s(model, work, layout, device, batch / busy);
  time.decode_s = waves * decode;
  time.prefill_s =
      prefill_s(model, requests * work.prompt_len, work.prompt_len, layout.tp, device) / busy;
  time.total_s = time.prefill_s + time.decode_s;
  time.tokens_per_s = layout.replicas * requests * work.output_len / time.total_s;
  return time;
}

}  // namespace braid::inline pricing

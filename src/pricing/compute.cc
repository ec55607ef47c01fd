#include "pricing/compute.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "pricing/device_family.h"
#include "pricing/widths.h"

namespace braid::inline pricing {
namespace {

constexpr double kBackwardScores = 2.5;

// A soft maximum: two limits that nearly meet cost a little more than either.
double soft_max(double a, double b) { return std::pow(std::pow(a, 4) + std::pow(b, 4), 0.25); }

double hbm_rate(const DeviceModel& device) { return device.gpu.hbm_gbytes_per_s * 1e9; }

// Activations stay in 16 bit under narrower GEMMs.
double activation_bytes(const DeviceModel& device) {
  return std::max(2.0, precision_bytes(device.precision));
}

// The peak of what stays in 16 bit under narrower GEMMs, operations per second.
double wide_peak(const DeviceModel& device) {
  const Precision wide = device.precision == Precision::kF32 ? Precision::kF32 : Precision::kBf16;
  return peak_flops(device.gpu, wide).value();
}

// Operations per second of GEMMs with a narrowest weight dimension `width` and `rows` rows of
// activations.
double matmul_rate(const DeviceModel& device, Precision precision, double width, double rows) {
  const Efficiency& e = device.efficiency;
  double share = e.matmul_share;
  if (precision == Precision::kFp8) share *= e.fp8_gain;
  if (precision == Precision::kFp4) share *= e.fp4_gain;
  const double narrow = precision == Precision::kFp8 || precision == Precision::kFp4 ? 2 : 1;
  return peak_flops(device.gpu, precision).value() * device.gpu.sustained_share * share /
         (1 + narrow * e.matmul_half_width * (1 / width + 1 / rows));
}

// Narrow heads leave tensor cores idle: half the rate at head width 64 of that at 128 and above,
// smoothed (FlashAttention-2, arXiv 2307.08691, section 4.1, compares 64 and 128).
double score_rate(const ModelSize& model, const DeviceModel& device) {
  const double width = model.mla ? 128 : static_cast<double>(model.head_dim);
  return std::sqrt(std::min(1.0, width / 128)) * wide_peak(device) * device.gpu.sustained_share *
         device.efficiency.attention_share;
}

double stream_rate(const DeviceModel& device) {
  return hbm_rate(device) * device.efficiency.stream_share;
}

// The parts of a forward pass, in seconds.
struct PassTime {
  double gemms = 0;
  double scores = 0;
  double streams = 0;
  double host = 0;
};

double expert_gemms_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  const Efficiency& e = device.efficiency;
  const double routed = pass.tokens * model.top_k;
  const double per_expert = routed * pass.ep / std::max<double>(model.experts, 1);
  const double width = std::min(model.hidden, model.expert_intermediate);
  const double rate = matmul_rate(device, device.precision, width, std::max(per_expert, 1.0)) *
                      e.expert_share / (1 + e.expert_half_tokens / std::max(per_expert, 1.0));
  const double flops = 2.0 * expert_params(model) * (routed + pass.tokens * model.shared_experts);
  return flops / pass.tp / rate;
}

double mlp_gemms_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  if (pass.kind == LayerKind::kMoe) return expert_gemms_s(model, pass, device);
  const double width =
      std::min<double>(model.hidden, static_cast<double>(model.intermediate) / pass.tp);
  return dense_mlp_flops(model) * pass.tokens / pass.tp /
         matmul_rate(device, device.precision, width, pass.tokens);
}

double stream_bytes(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  const Efficiency& e = device.efficiency;
  const double sharded = pass.sequence_parallel ? 1.0 / pass.tp : 0.5 + 0.5 / pass.tp;
  const bool narrow = device.precision == Precision::kFp8 || device.precision == Precision::kFp4;
  double passes =
      e.stream_passes * (pass.fused ? 1 : e.eager_factor) + (narrow ? e.quantize_passes : 0);
  double values = passes * model.hidden * sharded;
  const double mlp_width =
      pass.kind == LayerKind::kMoe
          ? static_cast<double>((model.top_k + model.shared_experts) * model.expert_intermediate)
          : static_cast<double>(model.intermediate);
  values += (model.gated_mlp ? 3 : 2) * mlp_width / pass.tp;
  if (pass.kind == LayerKind::kMoe)
    values += e.router_passes * model.top_k * model.hidden / pass.tp;
  return values * pass.tokens * activation_bytes(device);
}

PassTime pass_time(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  const Efficiency& e = device.efficiency;
  PassTime time;
  const double width = std::min<double>(model.hidden, attention_width(model) / pass.tp);
  time.gemms = attention_linear_flops(model) * pass.tokens / pass.tp /
                   matmul_rate(device, device.precision, width, pass.tokens) +
               mlp_gemms_s(model, pass, device);
  time.scores = attention_score_flops(model, pass.context) * pass.tokens / pass.tp /
                score_rate(model, device);
  time.streams = stream_bytes(model, pass, device) / stream_rate(device);
  time.host = (pass.graphs ? e.layer_host_us : e.eager_host_us) * 1e-6;
  if (pass.kind == LayerKind::kMoe && pass.loops_experts)
    time.host += static_cast<double>(model.experts) / pass.ep * e.expert_loop_us * 1e-6;
  return time;
}

// A shape of work as a profile knows it.
struct ProfiledWork {
  int tp = 1;
  double tokens = 0, context = 0;
};
std::optional<double> measured(ProfileOp op, const ModelSize& model, const ProfiledWork& work,
                               const DeviceModel& device) {
  if (device.profile == nullptr) return std::nullopt;
  return profiled_layer_s(*device.profile,
                          {op, layer_shape(model), work.tp, work.tokens, work.context, 0});
}

double head_gemms_s(const ModelSize& model, double tokens, int tp, const DeviceModel& device) {
  const double width = std::min<double>(model.hidden, static_cast<double>(model.vocab) / tp);
  return device.efficiency.head_factor * head_flops(model) * tokens / tp /
         matmul_rate(device,
                     device.precision == Precision::kF32 ? Precision::kF32 : Precision::kBf16,
                     width, std::max(tokens, 1.0));
}

// Routed experts that a batch touches when every token picks top_k of them evenly.
double touched_experts(const ModelSize& model, double sequences) {
  return model.experts *
         (1 - std::pow(1 - static_cast<double>(model.top_k) / model.experts, sequences));
}

// Parameters that a step reads, those of routed experts counted by how much slower their kernels
// read.
double decode_weights(const ModelSize& model, const DecodeStep& step, const Efficiency& e) {
  const double sparse = static_cast<double>(moe_layers(model)), dense = model.layers - sparse;
  double parameters =
      static_cast<double>(model.layers * attention_params(model) + head_params(model)) +
      dense * dense_mlp_params(model);
  if (sparse == 0) return parameters;
  const double routed = touched_experts(model, step.sequences) / e.decode_expert_share;
  return parameters + sparse * (expert_params(model) * (routed + model.shared_experts) +
                                static_cast<double>(model.hidden * model.experts));
}

double decode_flops(const ModelSize& model) {
  const double sparse = static_cast<double>(moe_layers(model));
  return model.layers * attention_linear_flops(model) +
         (model.layers - sparse) * dense_mlp_flops(model) + sparse * moe_mlp_flops(model) +
         head_flops(model);
}

double decode_host_s(const ModelSize& model, const DecodeStep& step, const Efficiency& e) {
  const double per_layer = step.graphs ? 0 : e.eager_layer_us * model.layers;
  return 1e-6 * (e.decode_host_us + e.decode_sequence_us * step.sequences + per_layer);
}

double gemm_peak(const DeviceModel& device) {
  return peak_flops(device.gpu, device.precision).value();
}

// The sums of a pass over all layers among tensor-parallel ranks, as measured: two for each layer
// and one at each end. Nothing where the profile has none.
double measured_sums_s(const ModelSize& model, double rows, int tp, bool inside,
                       const DeviceModel& device) {
  if (tp == 1 || device.profile == nullptr) return 0;
  const double bytes = rows * static_cast<double>(model.hidden) * activation_bytes(device);
  const auto one = profiled_collective_s(*device.profile, {"all_reduce", tp, inside, bytes, 0});
  return one ? (2.0 * static_cast<double>(model.layers) + 2) * *one : 0;
}

// Layers and head of a decode step as measured; a head that the profile lacks is computed.
std::optional<double> measured_decode_s(const ModelSize& model, const DecodeStep& step,
                                        const DeviceModel& device) {
  const auto layer =
      measured(ProfileOp::kLayerDecode, model, {step.tp, step.sequences, step.context}, device);
  if (!layer) return std::nullopt;
  return model.layers * *layer + head_forward_s(model, step.sequences, step.tp, device) +
         measured_sums_s(model, step.sequences, step.tp, !step.spans_domains, device);
}

}  // namespace

Result<DeviceModel> make_device(const GpuSpec& gpu, Precision precision, const std::string& engine,
                                const Calibration& calibration) {
  BRAID_TRY(peak_flops(gpu, precision).status());
  DeviceModel device{gpu, precision, family_efficiency(calibration, gpu, precision, engine),
                     nullptr};
  for (const Profile& profile : calibration.profiles)
    if (profile.gpu.key == gpu.key) device.profile = &profile;
  return device;
}

double layer_forward_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  if (const auto time =
          measured(ProfileOp::kLayerForward, model, {pass.tp, pass.tokens, pass.context}, device))
    return *time;
  const PassTime time = pass_time(model, pass, device);
  return soft_max(time.gemms + time.scores + time.streams, time.host);
}

double layer_backward_s(const ModelSize& model, const LayerPass& pass, const DeviceModel& device) {
  const PassTime time = pass_time(model, pass, device);
  const auto roofline_s = [&](double gemms) {
    return soft_max(gemms * time.gemms + kBackwardScores * time.scores + 2 * time.streams,
                    2 * time.host);
  };
  // Profiles measure a pass with weight gradients; without them it takes the roofline's share.
  if (const auto whole =
          measured(ProfileOp::kLayerBackward, model, {pass.tp, pass.tokens, pass.context}, device))
    return pass.frozen ? *whole * roofline_s(1) / roofline_s(2) : *whole;
  return roofline_s(pass.frozen ? 1 : 2);
}

double head_forward_s(const ModelSize& model, double tokens, int tp, const DeviceModel& device) {
  if (const auto time = measured(ProfileOp::kHeadForward, model, {tp, tokens, 0}, device))
    return *time;
  return head_gemms_s(model, tokens, tp, device);
}

double head_backward_s(const ModelSize& model, double tokens, int tp, bool frozen,
                       const DeviceModel& device) {
  if (const auto whole = measured(ProfileOp::kHeadBackward, model, {tp, tokens, 0}, device))
    return *whole * (frozen ? 0.5 : 1);
  return head_gemms_s(model, tokens, tp, device) * (frozen ? 1 : 2);
}

double embedding_forward_s(const ModelSize& model, double tokens, const DeviceModel& device) {
  constexpr double kPasses = 2;  // rows in, activations out
  return kPasses * tokens * model.hidden * activation_bytes(device) / stream_rate(device);
}

double embedding_backward_s(const ModelSize& model, double tokens, bool frozen,
                            const DeviceModel& device) {
  if (frozen) return 0;
  constexpr double kPasses = 3;  // gradients of activations in, of rows in and out
  return kPasses * tokens * model.hidden * activation_bytes(device) / stream_rate(device);
}

double optimizer_s(double parameters, double bytes_per_parameter, const DeviceModel& device) {
  if (device.profile != nullptr)
    if (const auto time = profiled_optimizer_s(*device.profile, parameters)) return *time;
  return parameters * bytes_per_parameter / stream_rate(device);
}

double host_copy_s(double bytes, const DeviceModel& device) {
  return bytes / (device.gpu.pcie_gbytes_per_s * 1e9 * device.efficiency.pcie_share);
}

double exchange_s(CollectiveOp op, double bytes, const CollectiveGroup& group,
                  const DeviceModel& device) {
  if (group.members <= 1) return 0;
  if (device.profile != nullptr) {
    const bool inside = group.members <= group.per_domain;
    if (const auto time = profiled_collective_s(
            *device.profile, {collective_name(op), group.members, inside, bytes, 0}))
      return *time;
  }
  return collective_s(op, bytes, group, device.efficiency);
}

double additions_s(double bytes, int members, const DeviceModel& device) {
  return 3 * bytes * (members - 1) / members / stream_rate(device);
}

double context_exchange_s(const ModelSize& model, double tokens, int tp,
                          const CollectiveGroup& group, const DeviceModel& device) {
  if (group.members == 1) return 0;
  const double width = 2.0 * model.kv_heads * model.head_dim / tp;
  const double bytes = tokens * width * widths_of(device.precision).activation * group.members;
  return exchange_s(CollectiveOp::kAllGather, bytes, group, device) * device.efficiency.cp_exposed;
}

double expert_exchange_s(const ModelSize& model, double tokens, int tp,
                         const CollectiveGroup& group, const DeviceModel& device) {
  if (group.members == 1) return 0;
  const double bytes =
      tokens / tp * model.top_k * model.hidden * widths_of(device.precision).activation;
  const double dispatch = exchange_s(CollectiveOp::kAllToAll, bytes, group, device);
  return 2 * dispatch * device.efficiency.ep_exposed;
}

double decode_step_s(const ModelSize& model, const DecodeStep& step, const DeviceModel& device) {
  if (const auto time = measured_decode_s(model, step, device)) return *time;
  const Efficiency& e = device.efficiency;
  const double ranks = step.tp;
  const double weights = decode_weights(model, step, e) / ranks * step.weight_bytes /
                         (hbm_rate(device) * e.decode_weight_share);
  const double gemms =
      decode_flops(model) * step.sequences / ranks / (gemm_peak(device) * e.decode_matmul_share);
  const double cached = mean_decode_context(model, step.context) * step.sequences;
  const auto kv_split = static_cast<double>(kv_cache_parts(model, step.tp));
  const double cache = cached * kv_bytes_per_token(model, step.kv_bytes) / kv_split /
                       (hbm_rate(device) * e.decode_kv_share);
  const double reduce_us = e.decode_reduce_us + (step.spans_domains ? e.decode_network_us : 0);
  const double reduces = step.tp > 1 ? 2 * model.layers * reduce_us * 1e-6 : 0;
  const double device_s =
      soft_max(weights, gemms) + cache + model.layers * e.decode_layer_us * 1e-6 + reduces;
  const double host = decode_host_s(model, step, e);
  return step.graphs ? device_s + host : soft_max(device_s, host);
}

double prefill_s(const ModelSize& model, double tokens, double length, int tp,
                 const DeviceModel& device) {
  if (const auto layer =
          measured(ProfileOp::kLayerForward, model, {tp, length, length / 2}, device))
    return tokens / std::max(length, 1.0) * model.layers * *layer +
           measured_sums_s(model, tokens, tp, true, device);
  const Efficiency& e = device.efficiency;
  const double linear = (forward_flops_per_token(model, 0) - head_flops(model)) * tokens;
  const double scores =
      model.layers * attention_score_flops(model, mean_causal_context(model, length)) * tokens;
  return (linear / (gemm_peak(device) * e.prefill_share) + scores / score_rate(model, device)) / tp;
}

}  // namespace braid::inline pricing

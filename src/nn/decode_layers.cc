#include "nn/decode_layers.h"

#include <ATen/TensorOperators.h>

#include <algorithm>

#include "nn/kernels/choice.h"
#include "nn/kernels/decode_step.h"

namespace braid::inline nn {
namespace {

bool is_served(const LinearLayer& linear, bool with_adapters) {
  const at::Tensor& packed = linear.packed.forward;
  const bool adapted =
      with_adapters && std::any_of(linear.parts.begin(), linear.parts.end(),
                                   [](const LinearPart& part) { return part.lora_a.defined(); });
  return !adapted && packed.defined() && library_of_packed(packed) == MatrixLibrary::kOwn;
}

bool is_served(const DecoderLayer& layer, bool with_adapters) {
  bool served = !layer.query_norm.weight.defined() && !layer.attention_post_norm.weight.defined();
  visit_linears(layer, [&](const LinearLayer* linear) {
    served = served && is_served(*linear, with_adapters);
  });
  return served;
}

StepMatrix step_matrix(const LinearLayer& linear) {
  const at::Tensor& bias = linear.bias;
  return {linear.packed.forward, bias.defined() ? bias.contiguous() : bias};
}

StepLayer step_layer(const DecoderLayer& layer, const ModelSpec& spec) {
  const auto norm = [&](const NormWeights& of) {
    return spec.norm_unit_offset ? of.weight.detach() + 1 : of.weight.contiguous();
  };
  return {norm(layer.attention_norm), norm(layer.mlp_norm),  step_matrix(layer.qkv),
          step_matrix(layer.output),  step_matrix(layer.up), step_matrix(layer.down)};
}

}  // namespace

at::Tensor run_decode_step(const std::vector<DecoderLayer>& layers, const LayerContext& context,
                           const at::Tensor& h_TH, const std::vector<KvLayer>& kv) {
  const ModelSpec& spec = *context.spec;
  const bool plain = h_TH.is_cpu() && h_TH.scalar_type() == at::kFloat && !kv.empty() &&
                     kv[0].keys.scalar_type() == at::kFloat &&
                     context.tensor_parallel->tp_size == 1;
  if (!plain || spec.norm != NormKind::kRms || !spec.gated_mlp) return {};
  if (has_mixed_layers(spec)) return {};  // a step has one window and one rotation
  const StepOptions options{{spec.heads, spec.kv_heads, spec.head_dim},
                            spec.norm_eps,
                            score_rule(spec),
                            spec.activation,
                            context.rope};
  if (!can_decode_step(options, *context.attention)) return {};
  std::vector<StepLayer> step;
  for (const DecoderLayer& layer : layers) {
    if (!is_served(layer, context.adapters.scale != 0)) return {};
    step.push_back(step_layer(layer, spec));
  }
  return decode_step(h_TH, context.positions_T, step, kv, *context.attention, options);
}

}  // namespace braid::inline nn

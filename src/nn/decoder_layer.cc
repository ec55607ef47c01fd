#include "nn/decoder_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cmath>

namespace braid::inline nn {

at::Tensor apply_norm(const NormWeights& norm, const ModelSpec& spec, const at::Tensor& x) {
  if (spec.norm == NormKind::kLayer) return layer_norm(x, norm.weight, norm.bias, spec.norm_eps);
  return rms_norm(x, norm.weight, spec.norm_eps, spec.norm_unit_offset);
}

ScoreRule score_rule(const ModelSpec& spec) {
  const double width = spec.score_width > 0 ? spec.score_width : static_cast<double>(spec.head_dim);
  return {1 / std::sqrt(width), spec.attention_soft_cap};
}

namespace {

NormedSum add_and_norm(const NormWeights& norm, const ModelSpec& spec, const at::Tensor& x,
                       const at::Tensor& y) {
  if (spec.norm == NormKind::kLayer) {
    const at::Tensor sum = x + y;
    return {sum, apply_norm(norm, spec, sum)};
  }
  return add_rms_norm(x, y, norm.weight, spec.norm_eps, spec.norm_unit_offset);
}

// Query and key heads may have norms (qwen3), which come before the rotation.
std::vector<at::Tensor> split_normed_heads(const DecoderLayer& layer, const LayerContext& context,
                                           const at::Tensor& qkv) {
  const ModelSpec& spec = *context.spec;
  const HeadLayout layout{spec.heads, spec.kv_heads, spec.head_dim};
  if (!layer.query_norm.weight.defined())
    return split_heads(qkv, layout, context.rope, context.positions_T);
  std::vector<at::Tensor> parts = split_heads(qkv, layout, {}, {});
  for (const auto& [part, norm] :
       {std::pair(0, &layer.query_norm), std::pair(1, &layer.key_norm)}) {
    const at::Tensor rows = parts[part].reshape({-1, spec.head_dim});
    const at::Tensor normed = apply_norm(*norm, spec, rows).view(parts[part].sizes());
    parts[part] =
        context.rope.defined() ? rotate(normed, context.rope, context.positions_T) : normed;
  }
  return parts;
}

// A layer whose columns the ranks share: this rank's GEMM, and the sum of all ranks', then the
// bias.
at::Tensor apply_own(const LinearLayer& layer, const LayerContext& context,
                     const at::Tensor& x_TI) {
  return context.tensor_parallel->tp_size == 1 ? apply_linear(layer, x_TI, context.adapters)
                                               : apply_gemm(layer, x_TI, context.adapters);
}
at::Tensor sum_gemms(const LinearLayer& layer, const LayerContext& context,
                     const at::Tensor& gemm_TH) {
  const TensorParallelGroup& group = *context.tensor_parallel;
  if (group.tp_size == 1) return gemm_TH;
  const at::Tensor sum = leave_shared(gemm_TH, group);
  return layer.bias.defined() ? sum + layer.parts[0].bias : sum;
}

// What this rank computes of attention, between the messages around it.
at::Tensor own_attention(const DecoderLayer& layer, const LayerContext& context,
                         const at::Tensor& x_TH, const KvLayer* cache) {
  const ModelSpec& spec = *context.spec;
  const at::Tensor qkv = apply_linear(layer.qkv, x_TH, context.adapters);
  const std::vector<at::Tensor> parts = split_normed_heads(layer, context, qkv);
  const at::Tensor &q = parts[0], &k = parts[1], &v = parts[2];
  if (cache != nullptr) store_kv(k, v, *context.attention, *cache);
  const at::Tensor mixed = attention(q, k, v, *context.attention, score_rule(spec), cache);
  return apply_own(layer.output, context,
                   mixed.reshape({x_TH.size(0), spec.heads * spec.head_dim}));
}

at::Tensor mlp(const DecoderLayer& layer, const LayerContext& context, const at::Tensor& x_KH) {
  const at::Tensor x_TH = enter_shared(x_KH, context.rows, *context.tensor_parallel);
  const at::Tensor up = apply_linear(layer.up, x_TH, context.adapters);
  const at::Tensor active = context.spec->gated_mlp ? gated_activation(up, context.spec->activation)
                                                    : activate(up, context.spec->activation);
  return sum_gemms(layer.down, context, apply_own(layer.down, context, active));
}

// What the backward needs to run a layer, or a part of it, again, in the form that an autograd
// context can hold.
using RunPart = at::Tensor (*)(const DecoderLayer&, const LayerContext&, const at::Tensor&,
                               const KvLayer*);
struct LayerCall : torch::CustomClassHolder {
  RunPart run = nullptr;
  const DecoderLayer* layer = nullptr;
  LayerContext context;
  torch::autograd::variable_list parameters;
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& input,
                            at::TensorList /*parameters*/,
                            const c10::intrusive_ptr<LayerCall>& call) {
    saved->save_for_backward({input});
    saved->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->run(*call->layer, call->context, input, nullptr);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& grads) {
    const auto capsule = saved->saved_data["call"].toCapsule();
    const auto& call = static_cast<const LayerCall&>(*capsule);
    const at::AutoGradMode with_grad(true);
    torch::autograd::variable_list inputs = {
        saved->get_saved_variables()[0].detach().requires_grad_(true)};
    const at::Tensor out = call.run(*call.layer, call.context, inputs[0], nullptr);
    inputs.insert(inputs.end(), call.parameters.begin(), call.parameters.end());
    auto result = torch::autograd::grad({out}, inputs, {grads[0]}, std::nullopt, false, true);
    result.emplace_back();
    return result;
  }
};

void collect(const at::Tensor& tensor, torch::autograd::variable_list* parameters) {
  if (tensor.defined() && tensor.requires_grad()) parameters->push_back(tensor);
}

torch::autograd::variable_list parameters_of(std::initializer_list<const NormWeights*> norms,
                                             std::initializer_list<const LinearLayer*> linears) {
  torch::autograd::variable_list parameters;
  for (const NormWeights* norm : norms) {
    collect(norm->weight, &parameters);
    collect(norm->bias, &parameters);
  }
  for (const LinearLayer* linear : linears)
    for (const LinearPart& part : linear->parts)
      for (const at::Tensor* tensor : {&part.weight, &part.bias, &part.lora_a, &part.lora_b})
        collect(*tensor, &parameters);
  return parameters;
}

// Runs `run`, and again in the backward, which has the input alone until then.
at::Tensor run_twice(RunPart run, const DecoderLayer& layer, const LayerContext& context,
                     const at::Tensor& input, torch::autograd::variable_list parameters) {
  auto call = c10::make_intrusive<LayerCall>();
  call->run = run;
  call->layer = &layer;
  call->context = context;
  call->parameters = std::move(parameters);
  return Recomputed::apply(input, at::TensorList(call->parameters), call);
}

at::Tensor self_attention(const DecoderLayer& layer, const LayerContext& context,
                          const at::Tensor& x_KH, const KvLayer* cache) {
  const at::Tensor x_TH = enter_shared(x_KH, context.rows, *context.tensor_parallel);
  const at::Tensor gemm = context.attention_twice
                              ? run_twice(own_attention, layer, context, x_TH,
                                          parameters_of({&layer.query_norm, &layer.key_norm},
                                                        {&layer.qkv, &layer.output}))
                              : own_attention(layer, context, x_TH, cache);
  return sum_gemms(layer.output, context, gemm);
}

}  // namespace

LayerGradients layer_gradients(const DecoderLayer& layer, bool input) {
  const bool middle = input || !parameters_of({}, {&layer.qkv, &layer.output}).empty();
  return {input, middle, middle || !parameters_of({}, {&layer.up, &layer.down}).empty()};
}

at::Tensor run_layer(const DecoderLayer& layer, const LayerContext& context, const at::Tensor& h_TH,
                     const KvLayer* cache) {
  const ModelSpec& spec = *context.spec;
  const auto post_norm = [&](const NormWeights& norm, const at::Tensor& y) {
    return norm.weight.defined() ? apply_norm(norm, spec, y) : y;
  };
  const at::Tensor x = apply_norm(layer.attention_norm, spec, h_TH);
  const at::Tensor attended = self_attention(layer, context, x, cache);
  const NormedSum h =
      add_and_norm(layer.mlp_norm, spec, h_TH, post_norm(layer.attention_post_norm, attended));
  return h.sum_TH + post_norm(layer.mlp_post_norm, mlp(layer, context, h.normed_TH));
}

at::Tensor run_layer_recomputed(const DecoderLayer& layer, const LayerContext& context,
                                const at::Tensor& h_TH) {
  return run_twice(
      run_layer, layer, context, h_TH,
      parameters_of({&layer.attention_norm, &layer.query_norm, &layer.key_norm,
                     &layer.attention_post_norm, &layer.mlp_norm, &layer.mlp_post_norm},
                    {&layer.qkv, &layer.output, &layer.up, &layer.down}));
}

}  // namespace braid::inline nn

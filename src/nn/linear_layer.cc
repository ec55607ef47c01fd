#include "nn/linear_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/kernels/kernels.h"

namespace braid::inline nn {

namespace {

// The joined tensor as a differentiable function of its parts, without copying: the backward hands
// each part its rows of the gradient.
struct JoinParts : torch::autograd::Function<JoinParts> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList parts,
                            const at::Tensor& joined) {
    std::vector<int64_t> rows;
    for (const at::Tensor& part : parts) rows.push_back(part.size(0));
    context->saved_data["rows"] = rows;
    return joined.detach();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    torch::autograd::variable_list result;
    int64_t begin = 0;
    for (const int64_t rows : context->saved_data["rows"].toIntVector()) {
      result.push_back(grads[0].narrow(0, begin, rows));
      begin += rows;
    }
    result.emplace_back();
    return result;
  }
};

at::Tensor joined(const LinearLayer& layer, at::Tensor LinearPart::*member,
                  const at::Tensor& whole) {
  if (!whole.defined() || !at::GradMode::is_enabled()) return whole;
  if (!(layer.parts[0].*member).requires_grad()) return whole;
  if (layer.parts.size() == 1) return layer.parts[0].*member;
  std::vector<at::Tensor> parts;
  for (const LinearPart& part : layer.parts) parts.push_back(part.*member);
  return JoinParts::apply(at::TensorList(parts), whole);
}

at::Tensor adapter_output(const LinearPart& part, const at::Tensor& x, const AdapterUse& adapters) {
  const at::Tensor read =
      adapters.dropout ? drop_numbers(*adapters.dropout, part.module, part.first_column, x) : x;
  return braid::linear(braid::linear(read, part.lora_a, {}), part.lora_b, {}) * adapters.scale;
}

}  // namespace

void pack_layer(LinearLayer* layer, bool for_backward) {
  PackedLinear& packed = layer->packed;
  if (packed.forward.defined() && (packed.backward.defined() || !for_backward)) return;
  packed = pack_linear(layer->weight, for_backward);
}

void bind_parts(LinearLayer* layer) {
  layer->packed = {};
  int64_t begin = 0;
  for (LinearPart& part : layer->parts) {
    part.weight = layer->weight.narrow(0, begin, part.rows).detach();
    if (layer->bias.defined()) part.bias = layer->bias.narrow(0, begin, part.rows).detach();
    begin += part.rows;
  }
}

void allocate_linear(LinearLayer* layer, int64_t in, bool bias, const at::TensorOptions& options) {
  int64_t rows = 0;
  for (const LinearPart& part : layer->parts) rows += part.rows;
  if (!layer->weight.defined()) layer->weight = at::empty({rows, in}, options);
  if (bias && !layer->bias.defined()) layer->bias = at::empty({rows}, options);
  bind_parts(layer);
}

namespace {

at::Tensor with_adapters(const LinearLayer& layer, const at::Tensor& x_TI, const at::Tensor& y,
                         const AdapterUse& adapters) {
  if (adapters.scale == 0) return y;
  std::vector<at::Tensor> updates;
  bool adapted = false;
  for (const LinearPart& part : layer.parts) {
    adapted = adapted || part.lora_a.defined();
    updates.push_back(part.lora_a.defined() ? adapter_output(part, x_TI, adapters)
                                            : at::zeros({x_TI.size(0), part.rows}, y.options()));
  }
  if (!adapted) return y;
  return y + (updates.size() == 1 ? updates[0] : at::cat(updates, 1));
}

}  // namespace

at::Tensor apply_linear(const LinearLayer& layer, const at::Tensor& x_TI,
                        const AdapterUse& adapters) {
  const at::Tensor y = braid::linear(x_TI, joined(layer, &LinearPart::weight, layer.weight),
                                     joined(layer, &LinearPart::bias, layer.bias), &layer.packed);
  return with_adapters(layer, x_TI, y, adapters);
}

at::Tensor apply_gemm(const LinearLayer& layer, const at::Tensor& x_TI,
                      const AdapterUse& adapters) {
  const at::Tensor y =
      braid::linear(x_TI, joined(layer, &LinearPart::weight, layer.weight), {}, &layer.packed);
  return with_adapters(layer, x_TI, y, adapters);
}

at::Tensor merged_weight(const LinearPart& part, double lora_scale) {
  if (!part.lora_a.defined()) return part.weight;
  const at::NoGradGuard no_grad;
  const at::Tensor update = at::mm(part.lora_b.to(at::kFloat), part.lora_a.to(at::kFloat));
  return (part.weight.to(at::kFloat) + update * lora_scale).to(part.weight.scalar_type());
}

}  // namespace braid::inline nn

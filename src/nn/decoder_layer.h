// One decoder layer of any family: weights, forward, and the forward that drops its activations.
// Not thread-safe. Shapes as in kernels.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "models/spec.h"
#include "nn/kernels/kernels.h"
#include "nn/linear_layer.h"
#include "nn/tensor_parallel.h"

namespace braid::inline nn {

struct NormWeights {
  std::string module;       // full Hugging Face name; "" = the family has no such norm
  at::Tensor weight, bias;  // bias is undefined unless it is a layer norm
};

struct DecoderLayer {
  NormWeights attention_norm, query_norm, key_norm, mlp_norm;
  NormWeights attention_post_norm, mlp_post_norm;  // of what goes to the residual stream
  LinearLayer qkv, output, up, down;
};

// How the spec's scores become weights.
ScoreRule score_rule(const ModelSpec& spec);

// What a forward of one layer needs besides weights and hidden states; cheap to copy.
struct LayerContext {
  const ModelSpec* spec = nullptr;  // of what this rank holds
  // Of rope_table(), or what rotation_rows() found in it; undefined without rotary positions.
  at::Tensor rope;
  at::Tensor positions_T;
  std::shared_ptr<const AttentionBatch> attention;
  AdapterUse adapters;
  const TensorParallelGroup* tensor_parallel = nullptr;  // not owned
  int64_t rows = 0;                                      // of the batch
  bool attention_twice = false;  // without a cache: the backward runs attention again
};

// Where in a layer gradients flow: into it, between attention and MLP, out of it. A backward comes
// no further down.
struct LayerGradients {
  bool input = false, middle = false, output = false;
};
// By what is trained of it, and whether its input has a gradient. REQUIRES: where norms are
// trained, the input has one.
LayerGradients layer_gradients(const DecoderLayer& layer, bool input);

at::Tensor apply_norm(const NormWeights& norm, const ModelSpec& spec, const at::Tensor& x);

// Hidden states [T, H] after the layer; `cache` is null for whole sequences.
at::Tensor run_layer(const DecoderLayer& layer, const LayerContext& context, const at::Tensor& h_TH,
                     const KvLayer* cache);

// The same without a cache, keeping only h_TH for the backward, which runs the layer again (Chen et
// al., 2016). The layer must outlive the backward.
at::Tensor run_layer_recomputed(const DecoderLayer& layer, const LayerContext& context,
                                const at::Tensor& h_TH);

// Calls visit(module, part) for every linear part, in file order.
template <typename Layer, typename Visit>
void visit_parts(Layer& layer, const Visit& visit) {
  for (auto* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down})
    for (auto& part : linear->parts) visit(*linear, part);
}

// Calls visit(norm) for each of the layer's norms, those that the family lacks included.
template <typename Layer, typename Visit>
void visit_norms(Layer& layer, const Visit& visit) {
  for (auto* norm : {&layer.attention_norm, &layer.query_norm, &layer.key_norm,
                     &layer.attention_post_norm, &layer.mlp_norm, &layer.mlp_post_norm})
    visit(*norm);
}

// Calls visit(linear) for each of the layer's matrices.
template <typename Layer, typename Visit>
void visit_linears(Layer& layer, const Visit& visit) {
  for (auto* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down}) visit(linear);
}

}  // namespace braid::inline nn

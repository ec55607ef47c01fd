#include "profile/measure.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "device/tensor_memory.h"
#include "nn/model.h"
#include "rollout/device_draw.h"
#include "rollout/sampler.h"
#include "train/optimizer.h"

namespace braid::inline profile {
namespace {

using Times = std::vector<LayerTime>;

// Of what times are: layers of this shape, and the share of one of so many tensor-parallel ranks.
struct Shape {
  std::string name;
  int tp = 1;
};

void measure_passes(LayerBench& layers, const ProfileSizes& sizes, const Shape& shape,
                    Times* times) {
  for (const int64_t tokens : sizes.tokens)
    for (const int64_t length : sizes.lengths) {
      if (length > tokens) continue;
      const double context = static_cast<double>(length) / 2, count = static_cast<double>(tokens);
      const double forward = layers.forward_s(tokens, length);
      const double both = layers.train_s(tokens, length);
      times->push_back({ProfileOp::kLayerForward, shape.name, shape.tp, count, context, forward});
      times->push_back({ProfileOp::kLayerBackward, shape.name, shape.tp, count, context,
                        std::max(both - forward, 0.5 * forward)});
    }
}

// The matrix of the head, packed as generation keeps it.
struct Head {
  Head(const ModelSize& size, const ProfileBench& bench)
      : weight_VH(at::rand({size.vocab, size.hidden},
                           at::TensorOptions(bench.dtype).device(bench.device))),
        packed(pack_linear(weight_VH, false)) {}
  at::Tensor logits(const at::Tensor& hidden_NH) const {
    return linear(hidden_NH, weight_VH, {}, &packed).to(at::kFloat);
  }
  at::Tensor hidden(int64_t rows) const {
    return at::rand({rows, weight_VH.size(1)}, weight_VH.options());
  }
  at::Tensor weight_VH;
  PackedLinear packed;
};

// Whether the caches of a decode step fit well; says what is left out.
bool has_room(const LayerBench& layers, const ProfileSizes& sizes, int64_t sequences,
              int64_t context, at::Device device) {
  constexpr double kShare = 0.5;
  const std::optional<int64_t> free = free_tensor_bytes(device);
  const double wanted = layers.cache_bytes(sequences, context);
  if (!free || wanted <= kShare * static_cast<double>(*free)) return true;
  sizes.note(cat(sequences, " sequences of ", context,
                 " cached tokens are left out: ", format_bytes(wanted), " of caches"));
  return false;
}

void measure_decoding(LayerBench& layers, const Head& head, const ProfileSizes& sizes,
                      const Shape& shape, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t sequences : sizes.batches) {
    const at::Tensor hidden_NH = head.hidden(sequences);
    for (const int64_t context : sizes.contexts) {
      if (!has_room(layers, sizes, sequences, context, hidden_NH.device())) continue;
      times->push_back({ProfileOp::kLayerDecode, shape.name, shape.tp,
                        static_cast<double>(sequences), static_cast<double>(context),
                        layers.decode_s(sequences, context, [&] { head.logits(hidden_NH); })});
    }
  }
}

// A token of each row of logits, as generation draws it: on an accelerator there.
void draw_tokens(const at::Tensor& logits_NV) {
  const std::vector<int32_t> nothing;
  const SamplingOptions sampling;
  std::vector<DrawRow> rows;
  for (int64_t i = 0; i < logits_NV.size(0); ++i)
    rows.push_back({&sampling, {&nothing, &nothing, static_cast<uint64_t>(i)}});
  if (!logits_NV.is_cpu()) {
    for (const auto& token : draw_on_device(rows, logits_NV))
      BRAID_CHECK(token.ok(), "logits of a product of finite numbers");
    return;
  }
  const at::Tensor scores = logits_NV.contiguous();
  float* const data = scores.mutable_data_ptr<float>();
  const int64_t vocab = scores.size(1);
  at::parallel_for(0, scores.size(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto token = sample_token(data + i * vocab, vocab, sampling, rows[i].context);
      BRAID_CHECK(token.ok(), "logits of a product of finite numbers");
    }
  });
}

// Rows of a decode step take their logits and draw from them, after all layers.
void measure_drawing(LayerBench& layers, const Head& head, const ProfileSizes& sizes,
                     const Shape& shape, const ProfileBench& bench, Times* times) {
  const at::NoGradGuard no_grad;
  for (const int64_t rows : sizes.batches) {
    const at::Tensor hidden_NH = head.hidden(rows);
    times->push_back(
        {ProfileOp::kHeadForward, shape.name, shape.tp, static_cast<double>(rows), 0,
         mean_s(
             bench, [&] { draw_tokens(head.logits(hidden_NH)); }, [&] { layers.pass(rows); })});
  }
}

// Passes of training take log-probabilities and entropy.
void measure_head(const Head& head, const ProfileSizes& sizes, const Shape& shape,
                  const ProfileBench& bench, Times* times) {
  const at::Tensor weight_VH = head.weight_VH.detach().requires_grad_(true);
  const HeadOptions chunks{.chunk_rows = head_chunk_rows(bench.device)};
  for (const int64_t rows : sizes.tokens) {
    const at::Tensor targets_N = at::zeros({rows}, weight_VH.options().dtype(at::kLong));
    const at::Tensor hidden_NH = head.hidden(rows).requires_grad_(true);
    const auto forward = [&] { return head_logprobs(hidden_NH, weight_VH, targets_N, chunks); };
    const double both = mean_s(bench, [&] { forward().logprobs_N.sum().backward(); });
    const double alone = mean_s(bench, [&] {
      const at::NoGradGuard no_grad;
      forward();
    });
    const double count = static_cast<double>(rows);
    if (std::count(sizes.batches.begin(), sizes.batches.end(), rows) == 0)
      times->push_back({ProfileOp::kHeadForward, shape.name, shape.tp, count, 0, alone});
    times->push_back({ProfileOp::kHeadBackward, shape.name, shape.tp, count, 0,
                      std::max(both - alone, 0.5 * alone)});
  }
}

// What a chunk of logits and the gradient of the matrix take, by entry of the vocabulary.
double head_bytes(const ModelSize& size, const ProfileBench& bench) {
  const at::TensorOptions options = at::TensorOptions(bench.dtype).device(bench.device);
  const HeadOptions chunks{.chunk_rows = head_chunk_rows(bench.device)};
  const int64_t rows = 4 * chunks.chunk_rows;  // several chunks
  const at::Tensor weight_VH = at::rand({size.vocab, size.hidden}, options).requires_grad_(true);
  const at::Tensor hidden_NH = at::rand({rows, size.hidden}, options).requires_grad_(true);
  const at::Tensor targets_N = at::zeros({rows}, options.dtype(at::kLong));
  const auto pass = [&] {
    head_logprobs(hidden_NH, weight_VH, targets_N, chunks).logprobs_N.sum().backward();
  };
  pass();  // the matrix's gradient stays
  const PeakMeter meter(bench.device);
  pass();
  return static_cast<double>(meter.most_bytes()) / static_cast<double>(size.vocab);
}

// Only where tensors of the device are counted.
void measure_memory(LayerBench& layers, const ProfileSizes& sizes, const ModelSize& size,
                    const ProfileBench& bench, Profile* profile) {
  if (held_tensor_bytes(bench.device) == 0 || size.experts > 0) return;
  const int64_t tokens = *std::max_element(sizes.tokens.begin(), sizes.tokens.end());
  const int64_t length = *std::min_element(sizes.lengths.begin(), sizes.lengths.end());
  profile->efficiencies = layers.memory(tokens, std::min(tokens, length));
  profile->efficiencies["mem_logit_bytes"] = 0;
  profile->efficiencies["mem_head_bytes"] = head_bytes(size, bench);
}

void measure_optimizer(LayerBench& layers, const ProfileBench& bench, const Shape& shape,
                       Times* times) {
  const auto parameters = layers.model().trainable_parameters();
  double count = 0;
  for (const auto& [name, parameter] : parameters) count += static_cast<double>(parameter.numel());
  AdamW optimizer(parameters, OptimizerConfig{});
  const auto fill = [&] {
    for (const auto& [name, parameter] : parameters)
      parameter.mutable_grad() = at::zeros_like(parameter);
  };
  const double filling = mean_s(bench, fill);
  const double both = mean_s(bench, [&] {
    fill();
    optimizer.step(1);
  });
  times->push_back({ProfileOp::kOptimizer, shape.name, shape.tp, count, 0,
                    std::max(both - filling, 0.1 * both)});
}

// What one of `tp` tensor-parallel ranks computes of a model: its heads, columns and entries of the
// vocabulary. REQUIRES: shares_evenly().
ModelSpec share_of(ModelSpec model, int64_t tp) {
  model.heads /= tp;
  model.kv_heads = std::max<int64_t>(1, model.kv_heads / tp);
  model.intermediate /= tp;
  model.vocab = (model.vocab + tp - 1) / tp;  // the largest share
  return model;
}

// Layers and head of a model, or of the share of one of several ranks. What these send each other
// is not in it.
void measure_layers(LayerBench& layers, const ModelSize& size, const ProfileSizes& sizes,
                    const Shape& shape, const ProfileBench& bench, Times* times) {
  measure_passes(layers, sizes, shape, times);
  const Head head(size, bench);
  measure_decoding(layers, head, sizes, shape, times);
  measure_drawing(layers, head, sizes, shape, bench, times);
  measure_head(head, sizes, shape, bench, times);
}

Status measure_whole(const ProfileSizes& sizes, const ModelSpec& model, const ProfileBench& bench,
                     Profile* profile) {
  const Shape shape{layer_shape(model)};
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(model, bench));
  measure_layers(layers, model, sizes, shape, bench, &profile->layers);
  measure_optimizer(layers, bench, shape, &profile->layers);
  measure_memory(layers, sizes, model, bench, profile);
  return ok_status();
}

Status measure_share(const ProfileSizes& sizes, const ModelSpec& model, int64_t tp,
                     const ProfileBench& bench, Times* times) {
  const ModelSpec share = share_of(model, tp);
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(share, bench));
  measure_layers(layers, share, sizes, {layer_shape(model), static_cast<int>(tp)}, bench, times);
  return ok_status();
}

}  // namespace

bool shares_evenly(const ModelSize& size, int64_t tp) {
  return size.experts == 0 && size.heads % tp == 0 && size.intermediate % tp == 0 &&
         (size.kv_heads % tp == 0 || tp % size.kv_heads == 0);
}

Result<Profile> measure_model(const ProfileSizes& sizes, const ModelSpec& model,
                              const ProfileBench& bench, const MachineRates& rates) {
  Profile profile;
  profile.engine = "braid";
  profile.precision = bench.dtype == at::kBFloat16 ? Precision::kBf16 : Precision::kF32;
  profile.gpu = measured_device(bench, rates);
  BRAID_TRY(measure_whole(sizes, model, bench, &profile));
  for (const int64_t tp : sizes.tp)
    BRAID_TRY(measure_share(sizes, model, tp, bench, &profile.layers));
  return profile;
}

}  // namespace braid::inline profile

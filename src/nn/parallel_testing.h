// One model in one process beside the same model on several ranks, for tests of layouts. Only tests
// include this.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/world.h"
#include "nn/decoder.h"
#include "nn/model_parts.h"
#include "nn/test_models.h"

namespace braid::inline nn {

// How one replica lies on ranks: stages outermost, tensor-parallel ranks neighbours.
struct TestLayout {
  int64_t tp = 1;
  std::vector<int64_t> stage_layers = {};  // empty: one stage
  bool sequence_parallel = false;
  bool native = false;  // sums are the backend's own
  int64_t stages() const { return std::max<int64_t>(1, stage_layers.size()); }
  int64_t ranks() const { return tp * stages(); }
  std::string name() const {
    std::vector<std::string> layers;
    for (const int64_t count : stage_layers) layers.push_back(std::to_string(count));
    return cat("tp", tp, sequence_parallel ? "s" : "", native ? " native" : "", " stages ",
               join(layers, "+"));
  }
};

// Communicators of one rank in a layout whose first rank is `base`.
struct TestGroups {
  TensorParallelGroup tensor;
  Communicator* stage_line = nullptr;  // ranks with this tp_rank, by stage; null for one stage
  Communicator* ends = nullptr;        // first and last of them, where this rank is one
  int64_t stage = 0;
  LayerRange range;
};

inline TestGroups make_groups(World& world, const TestLayout& layout, const ModelSpec& spec,
                              int64_t base = 0) {
  const int64_t place = world.global_rank() - base;
  TestGroups out;
  const auto group = [&](const std::string& kind, std::vector<int64_t> ranks) {
    std::string name = kind;
    for (const int64_t rank : ranks) name += cat("-", rank);
    auto found = world.group(name, ranks);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return *found;
  };
  out.stage = place / layout.tp;
  out.tensor = {.tp_rank = place % layout.tp, .tp_size = layout.tp};
  out.tensor.sequence_parallel = layout.sequence_parallel;
  out.tensor.native = layout.native;
  const int64_t first = base + out.stage * layout.tp;
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < layout.tp; ++i) ranks.push_back(first + i);
  if (layout.tp > 1) out.tensor.communicator = group("tensor", ranks);
  if (layout.tp > spec.kv_heads) {
    const int64_t holders = layout.tp / spec.kv_heads;
    const int64_t lead = first + out.tensor.tp_rank / holders * holders;
    ranks.clear();
    for (int64_t i = 0; i < holders; ++i) ranks.push_back(lead + i);
    out.tensor.shared = group("shared", ranks);
  }
  ranks.clear();
  for (int64_t s = 0; s < layout.stages(); ++s)
    ranks.push_back(base + s * layout.tp + out.tensor.tp_rank);
  out.range = {0, spec.layers};
  if (layout.stages() > 1) {
    out.stage_line = group("stages", ranks);
    if (out.stage == 0 || out.stage == layout.stages() - 1)
      out.ends = group("ends", {ranks.front(), ranks.back()});
    for (int64_t s = 0; s < out.stage; ++s) out.range.begin += layout.stage_layers[s];
    out.range.end = out.range.begin + layout.stage_layers[out.stage];
  }
  return out;
}

inline at::Tensor seeded_normal(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// A batch with everything that a loss needs.
struct TestBatch {
  TokenBatch tokens;
  at::Tensor targets_T, weights_T, entropy_weights_T;
};

inline TestBatch make_batch(const ModelSpec& spec, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  std::vector<std::vector<int32_t>> sequences;
  int64_t total = 0;
  for (const int64_t length : {7, 12, 4}) {
    const at::Tensor ids = at::randint(spec.vocab, {length}, generator, at::kLong);
    sequences.emplace_back();
    for (int64_t i = 0; i < length; ++i) sequences.back().push_back(ids[i].item<int32_t>());
    total += length;
  }
  return {pack_sequences(sequences, at::kCPU),
          at::randint(spec.vocab, {total}, generator, at::kLong), seeded_normal({total}, seed + 1),
          seeded_normal({total}, seed + 2) * 0.1};
}

// Loss of hidden states after the last layer, and what is compared beside it.
struct TestLoss {
  at::Tensor loss, outputs;
  double terms = 0;  // the sum of the magnitudes of what the loss adds up, some of which cancels
};

inline TestLoss loss_of(Model& model, const at::Tensor& hidden, const TestBatch& batch,
                        bool compares = true) {
  if (model.spec().scalar_head) {
    const at::Tensor values = scalar_outputs(model, hidden);
    const at::Tensor terms = values * batch.weights_T;
    return {terms.sum(), values.detach(), terms.detach().abs().sum().item<double>()};
  }
  const HeadOutput head = head_logprobs(model, hidden, batch.targets_T, 0.9, 8);
  const at::NoGradGuard no_grad;
  const at::Tensor outputs = compares ? logits(model, hidden.detach()) : at::Tensor();
  const at::AutoGradMode grad(true);
  const at::Tensor picked = head.logprobs_N * batch.weights_T,
                   spread = head.entropy_N * batch.entropy_weights_T;
  const at::Tensor terms = picked.detach().abs().sum() + spread.detach().abs().sum();
  return {picked.sum() + spread.sum(), outputs, terms.item<double>()};
}

// Forward and backward of one stage; loss and outputs on the last one.
inline TestLoss run_stage(Model& model, const TestGroups& groups, const TestBatch& batch) {
  constexpr int32_t kForward = 1, kBackward = 2;
  Communicator* line = groups.stage_line;
  const auto rank_of = [&](int64_t stage) { return line->members()[stage]; };
  const bool first = groups.range.begin == 0, last = groups.range.end == model.spec().layers;
  at::Tensor in;
  if (!first) {
    const int64_t rows = kept_rows(batch.tokens.tokens_T.size(0), groups.tensor);
    in = at::empty({rows, model.spec().hidden}, model.options().dtype);
    EXPECT_EQ(line->receive(in, rank_of(groups.stage - 1), kForward, "hidden").wait().message(),
              "");
    in.set_requires_grad(true);
  }
  const at::Tensor out = model.forward(batch.tokens, nullptr, in);
  TestLoss result;
  if (last) {
    result = loss_of(model, out, batch);
    result.loss.backward();
  } else {
    const at::Tensor sent = out.detach().contiguous(), gradient = at::empty_like(sent);
    EXPECT_EQ(line->send(sent, rank_of(groups.stage + 1), kForward, "hidden").wait().message(), "");
    EXPECT_EQ(
        line->receive(gradient, rank_of(groups.stage + 1), kBackward, "hidden").wait().message(),
        "");
    out.backward(gradient);
  }
  if (!first) {
    const at::Tensor gradient = in.grad().contiguous();
    EXPECT_EQ(line->send(gradient, rank_of(groups.stage - 1), kBackward, "hidden").wait().message(),
              "");
  }
  return result;
}

inline double relative_error(const at::Tensor& actual, const at::Tensor& expected, double floor) {
  const double norm = expected.to(at::kDouble).norm().item<double>();
  return (actual.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>() /
         std::max({norm, floor, 1e-30});
}

inline std::map<std::string, at::Tensor> by_name(const Model& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, parameter] : model.parameters()) out[name] = parameter;
  return out;
}

inline double global_norm(const Model& model) {
  double squares = 0;
  for (const auto& [name, parameter] : model.trainable_parameters()) {
    const double norm = parameter.grad().defined() ? parameter.grad().norm().item<double>() : 0.0;
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

// Everything random, adapters and biases too.
inline void randomize(Model& model) {
  const at::NoGradGuard no_grad;
  uint64_t seed = 77;
  for (const auto& [name, parameter] : model.parameters())
    parameter.add_(seeded_normal(parameter.sizes(), seed++).to(parameter.scalar_type()) * 0.05);
  model.weights_changed();
}

// The slices of the whole model's values.
inline void take_values(Model& part, const Model& whole) {
  const at::NoGradGuard no_grad;
  const auto values = by_name(whole);
  const auto& shards = dynamic_cast<const Decoder&>(part).shards();
  for (const auto& [name, parameter] : part.parameters())
    parameter.copy_(take_shard(values.at(name), shards.at(name)));
  part.weights_changed();
}

}  // namespace braid::inline nn

#include "nn/model.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/rng.h"
#include "device/device_copy.h"
#include "nn/decoder.h"
#include "nn/shard.h"
#include "nn/shared_head.h"

namespace braid::inline nn {

namespace {

std::vector<uint64_t> keys_by_tokens(const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> out;
  uint64_t key = 0;
  for (const int32_t token : tokens)
    out.push_back(key = mix_seed(key, static_cast<uint64_t>(token)));
  return out;
}

}  // namespace

TokenBatch pack_sequences(const std::vector<std::vector<int32_t>>& sequences, at::Device device,
                          const std::vector<SharedStart>& starts,
                          const std::vector<std::vector<uint64_t>>& keys) {
  std::vector<int64_t> tokens, positions;
  TokenBatch batch;
  AttentionBatch& attention = batch.attention;
  attention.query_begin = {0};
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SharedStart start = starts.empty() ? SharedStart() : starts[s];
    BRAID_CHECK(start.host >= 0 || start.tokens == 0, "shared tokens without a host");
    if (start.host >= 0) {
      BRAID_CHECK(static_cast<size_t>(start.host) < s && starts[start.host].host < 0,
                  "a host is an earlier, whole sequence");
      const size_t most = std::min(sequences[s].size(), sequences[start.host].size());
      BRAID_CHECK(start.tokens >= 0 && static_cast<size_t>(start.tokens) <= most,
                  "more shared tokens than a sequence has");
      const auto begin = sequences[s].begin();
      BRAID_CHECK(std::equal(begin, begin + start.tokens, sequences[start.host].begin()),
                  "a sequence begins with other tokens than its host");
    }
    for (size_t i = start.tokens; i < sequences[s].size(); ++i) {
      tokens.push_back(sequences[s][i]);
      positions.push_back(static_cast<int64_t>(i));
    }
    const std::vector<uint64_t> own = keys.empty() ? keys_by_tokens(sequences[s]) : keys[s];
    batch.row_keys_T.insert(batch.row_keys_T.end(), own.begin() + start.tokens, own.end());
    attention.query_begin.push_back(static_cast<int32_t>(tokens.size()));
    attention.cached.push_back(start.tokens);
    if (!starts.empty()) attention.hosts.push_back(start.host);
  }
  batch.tokens_T = to_device(at::tensor(tokens, at::kLong), device);
  batch.positions_T = to_device(at::tensor(positions, at::kLong), device);
  return batch;
}

std::vector<std::pair<std::string, at::Tensor>> Model::trainable_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> trainable;
  for (auto& item : parameters())
    if (item.second.requires_grad()) trainable.push_back(item);
  return trainable;
}

at::Tensor own_logits(Model& model, const at::Tensor& hidden_NH) {
  const at::Tensor own =
      braid::linear(hidden_NH, model.head_weight(), {}, &model.packed_head()).to(at::kFloat);
  soft_cap_in_place(own, model.spec().logit_soft_cap);
  return own;
}

at::Tensor logits(Model& model, const at::Tensor& hidden_NH) {
  return gather_columns(own_logits(model, hidden_NH), model.spec().vocab,
                        model.options().tensor_parallel);
}

HeadOutput head_logprobs(const Model& model, const at::Tensor& h_NH, const at::Tensor& targets_N,
                         double temperature, int64_t chunk_rows) {
  const TensorParallelGroup& group = model.options().tensor_parallel;
  const int64_t rows = head_chunk_rows(h_NH.device(), chunk_rows);
  const HeadOptions options{temperature, rows, model.spec().logit_soft_cap};
  if (group.tp_size == 1) return head_logprobs(h_NH, model.head_weight(), targets_N, options);
  const int64_t begin = units_of_rank(model.spec().vocab, group).begin;
  return shared_head_logprobs(h_NH, model.head_weight(), targets_N - begin, {options, &group});
}

at::Tensor scalar_outputs(const Model& model, const at::Tensor& hidden_NH) {
  return braid::linear(hidden_NH, model.value_weight(), {}).squeeze(1).to(at::kFloat);
}

at::Tensor Model::value_weight() const {
  BRAID_CHECK(spec_.scalar_head, "the model has no scalar head");
  return head_weight();
}

Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const ModelOptions& options,
                                          const ModelPlaced& placed) {
  BRAID_TRY(Decoder::validate_options(spec, options));
  auto decoder = std::make_unique<Decoder>(spec, options);
  if (placed) placed(*decoder, false);
  init_weights(*decoder);
  init_adapters(*decoder);
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace braid::inline nn

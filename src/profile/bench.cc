#include "profile/bench.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <chrono>

#include "device/device.h"
#include "device/tensor_memory.h"
#include "pricing/memory.h"

namespace braid::inline profile {
namespace {

std::vector<std::vector<int32_t>> sequences_of(int64_t tokens, int64_t length) {
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t left = tokens; left > 0; left -= length)
    sequences.emplace_back(static_cast<size_t>(std::min(left, length)), 1);
  return sequences;
}

// The layers that are measured.
LayerRange middle_layers(const ModelSize& size) {
  constexpr double kLayerBytes = 1073741824.0;
  const double bytes = 4.0 * static_cast<double>(attention_params(size) + dense_mlp_params(size));
  const int64_t begin = size.layers > 1 ? 1 : 0;
  const int64_t most = std::max<int64_t>(1, size.layers - begin - (size.layers > 2 ? 1 : 0));
  return {begin, begin + std::clamp(static_cast<int64_t>(kLayerBytes / bytes), int64_t{1}, most)};
}

void drop_gradients(Model& model) {
  for (const auto& [name, parameter] : model.trainable_parameters())
    parameter.mutable_grad().reset();
}

// What a pass holds, in bytes.
struct PassMemory {
  double packed = 0;  // copies of weights, before the pass and after it
  double kept = 0;    // for the backward
  double extra = 0;   // at most, beside that
};

// A pass with its backward, where it has one. The gradients of weights are not counted.
PassMemory pass_memory(Model& model, const TokenBatch& batch, const at::Tensor& hidden_TH,
                       bool trains) {
  const at::Device device = hidden_TH.device();
  PassMemory out;
  const at::AutoGradMode mode(trains);
  const auto pass = [&] { return model.forward(batch, nullptr, hidden_TH); };
  const auto held = [&] { return static_cast<double>(held_tensor_bytes(device)); };
  drop_gradients(model);
  model.rest();
  const double bare = held();
  if (trains) pass().sum().backward();  // gradients and packed copies are there from here on
  if (!trains) pass();
  double gradients = 0;
  for (const auto& [name, parameter] : model.trainable_parameters())
    if (parameter.grad().defined()) gradients += static_cast<double>(parameter.grad().nbytes());
  hidden_TH.mutable_grad().reset();
  const double before = held();
  out.packed = before - bare - gradients;
  const PeakMeter meter(device);
  {
    const at::Tensor result = pass();
    out.kept = trains ? held() - before : 0;
    if (trains) result.sum().backward();
  }
  out.extra = static_cast<double>(meter.most_bytes()) - out.kept;
  hidden_TH.mutable_grad().reset();
  drop_gradients(model);
  return out;
}

}  // namespace

double mean_s(const ProfileBench& bench, const std::function<void()>& work,
              const std::function<void()>& before) {
  using Clock = std::chrono::steady_clock;
  work();
  finish_work(bench.device);
  if (bench.everyone != nullptr) {
    const Status together = bench.everyone->barrier("a measurement");
    if (!together.ok()) throw CommunicationFailure(together);
  }
  double total = 0;
  int times = 0;
  for (; times < 3 || (total < bench.seconds && times < 1000); ++times) {
    if (before) before();
    finish_work(bench.device);
    const auto start = Clock::now();
    work();
    finish_work(bench.device);
    total += std::chrono::duration<double>(Clock::now() - start).count();
  }
  return total / times;
}

Result<LayerBench> LayerBench::make(const ModelSpec& spec, const ProfileBench& bench) {
  ModelOptions options;
  options.dtype = bench.dtype;
  options.device = bench.device;
  options.ranges = {middle_layers(spec)};
  LayerBench out(bench, spec);
  BRAID_ASSIGN(out.model_, make_model(spec, options));
  out.model_->keep_packed(true);  // as where several micro-batches use the same weights
  return out;
}

double LayerBench::forward_s(int64_t tokens, int64_t length) {
  const at::NoGradGuard no_grad;
  const TokenBatch batch = pack_sequences(sequences_of(tokens, length), bench_.device);
  const at::Tensor hidden_TH = hidden(tokens);
  return per_layer_s([&] { model_->forward(batch, nullptr, hidden_TH); });
}

double LayerBench::train_s(int64_t tokens, int64_t length) {
  const TokenBatch batch = pack_sequences(sequences_of(tokens, length), bench_.device);
  const at::Tensor hidden_TH = hidden(tokens).requires_grad_(true);
  return per_layer_s([&] { model_->forward(batch, nullptr, hidden_TH).sum().backward(); });
}

double LayerBench::cache_bytes(int64_t sequences, int64_t context) const {
  const int64_t pages = sequences * pages_for(context + 1);
  return 2.0 *
         static_cast<double>(layers() * pages * kPageTokens * spec_.kv_heads * spec_.head_dim) *
         static_cast<double>(c10::elementSize(bench_.dtype));
}

void LayerBench::pass(int64_t tokens) {
  const at::NoGradGuard no_grad;
  const TokenBatch batch = pack_sequences(sequences_of(tokens, 1), bench_.device);
  model_->forward(batch, nullptr, hidden(tokens));
}

double LayerBench::decode_s(int64_t sequences, int64_t context,
                            const std::function<void()>& before) {
  const at::NoGradGuard no_grad;
  const int64_t pages = pages_for(context + 1);
  TokenBatch batch = pack_sequences(sequences_of(sequences, 1), bench_.device);
  batch.positions_T.add_(context);
  for (int64_t s = 0; s < sequences; ++s) {
    batch.attention.cached[s] = static_cast<int32_t>(context);
    batch.attention.page_tables.emplace_back();
    for (int64_t p = 0; p < pages; ++p)
      batch.attention.page_tables.back().push_back(static_cast<int32_t>(s * pages + p));
  }
  const std::vector<KvLayer> cache = make_cache(sequences * pages);
  const at::Tensor hidden_TH = hidden(sequences);
  return per_layer_s([&] { model_->forward(batch, &cache, hidden_TH); }, before);
}

at::Tensor LayerBench::hidden(int64_t tokens) const {
  return at::rand({tokens, spec_.hidden}, at::TensorOptions(bench_.dtype).device(bench_.device));
}

std::vector<KvLayer> LayerBench::make_cache(int64_t pages) const {
  const at::TensorOptions options = at::TensorOptions(bench_.dtype).device(bench_.device);
  std::vector<KvLayer> cache(static_cast<size_t>(layers()));
  for (KvLayer& layer : cache) {
    layer = allocate_kv(pages, spec_.kv_heads, spec_.head_dim, options);
    layer.keys.zero_();
    layer.values.zero_();
  }
  return cache;
}

// Formulas: sim/call_cost.h.
std::map<std::string, double> LayerBench::memory(int64_t tokens, int64_t length) {
  const TokenBatch batch = pack_sequences(sequences_of(tokens, length), bench_.device);
  const double width = static_cast<double>(c10::elementSize(bench_.dtype));
  const auto layers = static_cast<double>(this->layers()), count = static_cast<double>(tokens);
  const double counted =
      count * activation_bytes_per_token(spec_, LayerKind::kDense, 1, false, width);
  double weights = 0;
  for (const auto& [name, parameter] : model_->parameters())
    weights += static_cast<double>(parameter.nbytes());
  const PassMemory forward = pass_memory(*model_, batch, hidden(tokens), false);
  const PassMemory trained = pass_memory(*model_, batch, hidden(tokens).requires_grad_(true), true);
  ModelOptions options = model_->options();
  options.kept = KeptActivations::kInputs;
  const auto dropping = make_model(spec_, options);
  BRAID_CHECK(dropping.ok(), "the same layers were made before");
  const PassMemory repeated =
      pass_memory(**dropping, batch, hidden(tokens).requires_grad_(true), true);
  const double layer = trained.kept / layers;
  const double wide = 3.0 * static_cast<double>(spec_.intermediate) + 4.0 * spec_.hidden;
  return {{"mem_fused_factor", layer / counted},
          {"mem_work_share", trained.extra / layer},
          {"mem_work_layers", std::max(0.0, (repeated.extra - trained.extra) / layer)},
          {"mem_packed_share", forward.packed / weights},
          {"mem_packed_train_share", trained.packed / weights},
          {"mem_prefill_factor", forward.extra / (count * width * wide)}};
}

}  // namespace braid::inline profile

// braid profile: measures layers, heads, optimizer and memory of this machine with the model code
// that trains and samples, and writes a profile for the planner.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>

#include "base/text.h"
#include "cost/profile.h"
#include "dataflow/model_size.h"
#include "engine_options.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "host/machine.h"
#include "nn/model.h"
#include "train/optimizer.h"

namespace braid {
namespace {

// Where work is measured, and what a measurement costs.
struct Bench {
  at::Device device;
  double seconds = 0;
};

void wait_for(const at::Device& device) {
  if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

// The median time of one call after a first one that warms up; three at least.
double median_s(const Bench& bench, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  wait_for(bench.device);
  std::vector<double> times;
  double total = 0;
  while (times.size() < 3 || (total < bench.seconds && times.size() < 1000)) {
    const auto start = Clock::now();
    work();
    wait_for(bench.device);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

Result<at::Device> parse_device(const std::string& text) {
  if (text == "cpu") return at::Device(at::kCPU);
  int64_t index = 0;
  const bool numbered = text.rfind("cuda:", 0) == 0 && parse_int(text.substr(5), &index);
  if (text != "cuda" && !numbered)
    return invalid_input(cat("--device: '", text, "' is not cpu, cuda or cuda:N"));
  if (!at::detail::getCUDAHooks().hasCUDA())
    return invalid_input("--device: no CUDA device here; use cpu");
  return at::Device(at::kCUDA, static_cast<int8_t>(index));
}

// Rates of the machine that the roofline of other models starts from.
GpuSpec measure_machine(const Bench& bench) {
  GpuSpec gpu = find_gpu("this-machine").value();
  const Processor cpu = processor();
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(bench.device);
  gpu.name = cpu.model.empty() ? gpu.name : cpu.model;
  gpu.source = cat("measured by braid profile with ", at::get_num_threads(), " threads");
  gpu.unsure = false;
  gpu.hbm_bytes = static_cast<double>(machine_memory().total_bytes);
  constexpr int64_t kSide = 1536, kCopied = int64_t{1} << 25;
  const at::Tensor a = at::rand({kSide, kSide}, options), b = at::rand({kSide, kSide}, options);
  gpu.bf16_tflops = 2.0 * kSide * kSide * kSide / median_s(bench, [&] { at::mm(a, b); }) / 1e12;
  const at::Tensor from = at::ones({kCopied}, options);
  at::Tensor to = at::empty({kCopied}, options);
  gpu.hbm_gbytes_per_s = 2.0 * 4 * kCopied / median_s(bench, [&] { to.copy_(from); }) / 1e9;
  const at::Tensor host = at::ones({kCopied}, at::kFloat);
  gpu.pcie_gbytes_per_s = 4.0 * kCopied / median_s(bench, [&] { to.copy_(host); }) / 1e9;
  return gpu;
}

std::vector<std::vector<int32_t>> sequences_of(int64_t tokens, int64_t length) {
  std::vector<std::vector<int32_t>> sequences;
  for (int64_t left = tokens; left > 0; left -= length)
    sequences.emplace_back(static_cast<size_t>(std::min(left, length)), 1);
  return sequences;
}

// Layers of one model in the middle of its stack, so that neither embedding nor head is timed with
// them. As many as fit in a gibibyte: then their weights come from memory as in a run, not from
// cache.
class LayerBench {
 public:
  static Result<LayerBench> make(const ModelSpec& spec, const ModelSize& size, const Bench& bench) {
    constexpr double kLayerBytes = 1073741824.0;
    const double bytes = 4.0 * static_cast<double>(attention_params(size) + dense_mlp_params(size));
    const int64_t begin = size.layers > 1 ? 1 : 0;
    const int64_t most = std::max<int64_t>(1, size.layers - begin - (size.layers > 2 ? 1 : 0));
    const int64_t layers = std::clamp(static_cast<int64_t>(kLayerBytes / bytes), int64_t{1}, most);
    ModelOptions options;
    options.device = bench.device;
    options.range = LayerRange{begin, begin + layers};
    LayerBench out(bench, size);
    BRAID_ASSIGN(out.model_, make_model(spec, options));
    out.model_->keep_packed(true);  // as where several micro-batches use the same weights
    return out;
  }

  int64_t layers() const { return model_->options().range->end - model_->options().range->begin; }
  Model& model() { return *model_; }

  double forward_s(int64_t tokens, int64_t length) {
    const at::NoGradGuard no_grad;
    const TokenBatch batch = pack_sequences(sequences_of(tokens, length), bench_.device);
    const at::Tensor hidden_TH = hidden(tokens);
    return per_layer_s([&] { model_->forward(batch, nullptr, hidden_TH); });
  }

  // A forward pass that keeps what the backward needs, and the backward.
  double train_s(int64_t tokens, int64_t length) {
    const TokenBatch batch = pack_sequences(sequences_of(tokens, length), bench_.device);
    const at::Tensor hidden_TH = hidden(tokens).requires_grad_(true);
    return per_layer_s([&] { model_->forward(batch, nullptr, hidden_TH).sum().backward(); });
  }

  // One token of each sequence against its cache.
  double decode_s(int64_t sequences, int64_t context) {
    const at::NoGradGuard no_grad;
    const int64_t pages = context / kPageTokens + 1;
    TokenBatch batch = pack_sequences(sequences_of(sequences, 1), bench_.device);
    batch.positions_T = batch.positions_T + context;
    for (int64_t s = 0; s < sequences; ++s) {
      batch.attention.cached[s] = static_cast<int32_t>(context);
      batch.attention.page_tables.emplace_back();
      for (int64_t p = 0; p < pages; ++p)
        batch.attention.page_tables.back().push_back(static_cast<int32_t>(s * pages + p));
    }
    const std::vector<KvLayer> cache = make_cache(sequences * pages);
    const at::Tensor hidden_TH = hidden(sequences);
    return per_layer_s([&] { model_->forward(batch, &cache, hidden_TH); });
  }

 private:
  LayerBench(const Bench& bench, const ModelSize& size) : bench_(bench), size_(size) {}

  at::Tensor hidden(int64_t tokens) const {
    return at::rand({tokens, size_.hidden}, at::TensorOptions(at::kFloat).device(bench_.device));
  }

  std::vector<KvLayer> make_cache(int64_t pages) const {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(bench_.device);
    std::vector<KvLayer> cache(static_cast<size_t>(layers()));
    for (KvLayer& layer : cache) {
      layer.keys = at::zeros({pages, kPageTokens, size_.kv_heads, size_.head_dim}, options);
      layer.values = at::zeros_like(layer.keys);
    }
    return cache;
  }

  double per_layer_s(const std::function<void()>& work) const {
    return median_s(bench_, work) / static_cast<double>(layers());
  }

  Bench bench_;
  ModelSize size_;
  std::unique_ptr<Model> model_;
};

using Times = std::vector<LayerTime>;

void measure_passes(LayerBench& layers, const ProfileOptions& options, const std::string& shape,
                    Times* times) {
  for (const int64_t tokens : options.tokens)
    for (const int64_t length : options.lengths) {
      if (length > tokens) continue;
      const double context = static_cast<double>(length) / 2, count = static_cast<double>(tokens);
      const double forward = layers.forward_s(tokens, length);
      const double both = layers.train_s(tokens, length);
      times->push_back({ProfileOp::kLayerForward, shape, 1, count, context, forward});
      times->push_back({ProfileOp::kLayerBackward, shape, 1, count, context,
                        std::max(both - forward, 0.5 * forward)});
    }
}

void measure_decoding(LayerBench& layers, const ProfileOptions& options, const std::string& shape,
                      Times* times) {
  for (const int64_t sequences : options.batches)
    for (const int64_t context : options.contexts)
      times->push_back({ProfileOp::kLayerDecode, shape, 1, static_cast<double>(sequences),
                        static_cast<double>(context), layers.decode_s(sequences, context)});
}

// Rows of a decode step take their logits; passes of training take log-probabilities and entropy.
void measure_head(const ModelSize& size, const ProfileOptions& options, const Bench& bench,
                  Times* times) {
  const std::string shape = layer_shape(size);
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).device(bench.device);
  at::Tensor weight_VH = at::rand({size.vocab, size.hidden}, floats);
  const PackedLinear packed = pack_linear(weight_VH, false);
  for (const int64_t rows : options.batches) {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden_NH = at::rand({rows, size.hidden}, floats);
    times->push_back({ProfileOp::kHeadForward, shape, 1, static_cast<double>(rows), 0,
                      median_s(bench, [&] { linear(hidden_NH, weight_VH, {}, &packed); })});
  }
  weight_VH.requires_grad_(true);
  for (const int64_t rows : options.tokens) {
    const at::Tensor targets_N = at::zeros({rows}, floats.dtype(at::kLong));
    const at::Tensor hidden_NH = at::rand({rows, size.hidden}, floats).requires_grad_(true);
    const auto forward = [&] { return head_logprobs(hidden_NH, weight_VH, targets_N, 1); };
    const double both = median_s(bench, [&] { forward().logprobs_N.sum().backward(); });
    const double alone = median_s(bench, [&] {
      const at::NoGradGuard no_grad;
      forward();
    });
    const double count = static_cast<double>(rows);
    if (std::count(options.batches.begin(), options.batches.end(), rows) == 0)
      times->push_back({ProfileOp::kHeadForward, shape, 1, count, 0, alone});
    times->push_back(
        {ProfileOp::kHeadBackward, shape, 1, count, 0, std::max(both - alone, 0.5 * alone)});
  }
}

void measure_optimizer(LayerBench& layers, const Bench& bench, const std::string& shape,
                       Times* times) {
  const auto parameters = layers.model().trainable_parameters();
  double count = 0;
  for (const auto& [name, parameter] : parameters) count += static_cast<double>(parameter.numel());
  AdamW optimizer(parameters, OptimizerConfig{});
  const auto fill = [&] {
    for (const auto& [name, parameter] : parameters)
      parameter.mutable_grad() = at::zeros_like(parameter);
  };
  const double filling = median_s(bench, fill);
  const double both = median_s(bench, [&] {
    fill();
    optimizer.step(1);
  });
  times->push_back(
      {ProfileOp::kOptimizer, shape, 1, count, 0, std::max(both - filling, 0.1 * both)});
}

Status check_counts(const ProfileOptions& options) {
  const std::pair<const char*, const std::vector<int64_t>*> lists[] = {
      {"--tokens", &options.tokens},
      {"--lengths", &options.lengths},
      {"--batches", &options.batches},
      {"--contexts", &options.contexts}};
  for (const auto& [name, values] : lists)
    for (const int64_t value : *values)
      if (value < 1 || value > (int64_t{1} << 20))
        return invalid_input(cat(name, ": ", value, " is not in 1..1048576"));
  if (*std::min_element(options.lengths.begin(), options.lengths.end()) >
      *std::max_element(options.tokens.begin(), options.tokens.end()))
    return invalid_input("--lengths: every sequence is longer than the largest of --tokens");
  return ok_status();
}

Result<Profile> measure(const ProfileOptions& options) {
  BRAID_ASSIGN(const at::Device device, parse_device(options.device));
  const std::string file = join_path(options.model, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, file));
  BRAID_ASSIGN(const ModelSize size, parse_hf_config(text, file));
  const Bench bench{device, options.seconds};
  const std::string shape = layer_shape(size);
  Profile profile;
  profile.engine = "braid";
  profile.gpu = measure_machine(bench);
  BRAID_ASSIGN(LayerBench layers, LayerBench::make(spec, size, bench));
  measure_passes(layers, options, shape, &profile.layers);
  if (device.is_cpu()) measure_decoding(layers, options, shape, &profile.layers);
  measure_head(size, options, bench, &profile.layers);
  measure_optimizer(layers, bench, shape, &profile.layers);
  return profile;
}

Status run_profile(const ProfileOptions& options) {
  BRAID_TRY(check_counts(options));
  if (options.threads > 0) at::set_num_threads(options.threads);
  BRAID_ASSIGN(const Profile profile, measure(options));
  BRAID_TRY(write_file_atomic(options.out, profile_json(profile).dump(1) + "\n"));
  std::printf("matrix products %.4g TFLOP/s, memory %.4g GB/s, host copies %.4g GB/s\n",
              profile.gpu.bf16_tflops, profile.gpu.hbm_gbytes_per_s, profile.gpu.pcie_gbytes_per_s);
  std::printf("%-16s%10s%10s%14s\n", "operation", "tokens", "context", "us");
  for (const LayerTime& time : profile.layers)
    std::printf("%-16s%10.0f%10.0f%14.1f\n", profile_op_name(time.op), time.tokens, time.context,
                time.seconds * 1e6);
  std::printf("%zu times written to %s\n", profile.layers.size(), options.out.c_str());
  return ok_status();
}

}  // namespace

extern const Command kProfileCommand =
    kProfile.with([](ProfileOptions options, const std::vector<std::string>&) -> Status {
      BRAID_ASSIGN(options.model, locate_model(options.model));
      return run_profile(options);
    });

}  // namespace braid

// Micro-benchmarks of the hot functions at the sizes of a small model: attention, linear layers,
// sampler, packing.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include <map>

#include "base/rng.h"
#include "base/text.h"
#include "nn/kernels/choice.h"
#include "nn/kernels/kernels.h"
#include "program/partition.h"
#include "rollout/sampler.h"

namespace braid {
namespace {

constexpr int64_t kHeads = 8, kKvHeads = 4, kDepth = 64;

AttentionBatch whole_sequences(int64_t count, int64_t length) {
  AttentionBatch batch;
  for (int64_t s = 0; s <= count; ++s)
    batch.query_begin.push_back(static_cast<int32_t>(s * length));
  batch.cached.assign(count, 0);
  return batch;
}

// Eight sequences of the given length, forward.
void bm_attention_forward(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const int64_t length = state.range(0), tokens = 8 * length;
  const AttentionBatch batch = whole_sequences(8, length);
  const at::Tensor q = at::randn({tokens, kHeads, kDepth}),
                   k = at::randn({tokens, kKvHeads, kDepth});
  for (auto _ : state) benchmark::DoNotOptimize(attention(q, k, k, batch, {0.125}, nullptr));
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(bm_attention_forward)->Arg(192)->Arg(1024)->UseRealTime();

// The same with its backward.
void bm_attention_training(benchmark::State& state) {
  const int64_t length = state.range(0), tokens = 8 * length;
  const AttentionBatch batch = whole_sequences(8, length);
  const auto leaf = [&](int64_t heads) {
    return at::randn({tokens, heads, kDepth}).requires_grad_(true);
  };
  const at::Tensor q = leaf(kHeads), k = leaf(kKvHeads), v = leaf(kKvHeads);
  const at::Tensor grad = at::randn({tokens, kHeads, kDepth});
  for (auto _ : state) attention(q, k, v, batch, {0.125}, nullptr).backward(grad);
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(bm_attention_training)->Arg(192)->Arg(1024)->UseRealTime();

// One new token for each of 32 sequences with the given number of cached ones.
void bm_attention_decode(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const int64_t cached = state.range(0), pages = cached / kPageTokens + 1;
  AttentionBatch batch = whole_sequences(32, 1);
  batch.cached.assign(32, static_cast<int32_t>(cached));
  for (int32_t s = 0; s < 32; ++s) {
    batch.page_tables.emplace_back();
    for (int32_t p = 0; p < pages; ++p)
      batch.page_tables.back().push_back(s * static_cast<int32_t>(pages) + p);
  }
  const KvLayer layer{at::randn({32 * pages, kPageTokens, kKvHeads, kDepth}),
                      at::randn({32 * pages, kPageTokens, kKvHeads, kDepth})};
  const at::Tensor q = at::randn({32, kHeads, kDepth}), k = at::randn({32, kKvHeads, kDepth});
  for (auto _ : state) benchmark::DoNotOptimize(attention(q, k, k, batch, {0.125}, &layer));
  state.SetItemsProcessed(state.iterations() * 32);
}
BENCHMARK(bm_attention_decode)->Arg(128)->Arg(1024)->UseRealTime();

// The matrices of all layers of a model, multiplied by in turn so that they come from memory.
struct LayerMatrices {
  std::vector<at::Tensor> weights, packed;
  double numbers = 0;
};

LayerMatrices layer_matrices(bool tiny, at::ScalarType dtype, MatrixLibrary library) {
  const int64_t hidden = tiny ? 256 : 512, intermediate = tiny ? 688 : 1376;
  LayerMatrices out;
  for (int64_t layer = 0; layer < (tiny ? 4 : 8); ++layer)
    for (const auto& [rows, columns] :
         {std::pair(2 * hidden, hidden), std::pair(hidden, hidden),
          std::pair(2 * intermediate, hidden), std::pair(hidden, intermediate)}) {
      out.weights.push_back((at::randn({rows, columns}) * 0.02).to(dtype));
      if (library != MatrixLibrary::kDefault)
        out.packed.push_back(pack_weight(out.weights.back(), library));
      out.numbers += static_cast<double>(rows * columns);
    }
  return out;
}

struct GemmBench {
  bool tiny;
  at::ScalarType dtype;
  MatrixLibrary library;
  int64_t rows;
};

// Counters: floating-point operations and bytes of weights a second.
void bm_gemms(benchmark::State& state, const GemmBench& bench) {
  const at::NoGradGuard no_grad;
  const LayerMatrices layers = layer_matrices(bench.tiny, bench.dtype, bench.library);
  std::map<int64_t, at::Tensor> inputs;
  for (const at::Tensor& w : layers.weights)
    inputs[w.size(1)] = at::randn({bench.rows, w.size(1)}).to(bench.dtype);
  for (auto _ : state)
    for (size_t i = 0; i < layers.weights.size(); ++i) {
      const at::Tensor& x = inputs.at(layers.weights[i].size(1));
      benchmark::DoNotOptimize(bench.library == MatrixLibrary::kDefault
                                   ? at::linear(x, layers.weights[i])
                                   : packed_gemm(x, layers.packed[i], {}));
    }
  const auto per_second = [&](double count) {
    return benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["flop/s"] = per_second(2 * layers.numbers * static_cast<double>(bench.rows));
  state.counters["B/s"] =
      per_second(layers.numbers * static_cast<double>(c10::elementSize(bench.dtype)));
}

// Names such as gemms/small/f32/own/8: model, type, library, rows.
void register_gemms() {
  for (const bool tiny : {false, true})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
      for (const int64_t rows : {1, 4, 8, 32, 64, 256, 1536})
        for (const auto& [library, name] :
             {std::pair(MatrixLibrary::kDefault, "default"),
              std::pair(MatrixLibrary::kPacked, "packed"), std::pair(MatrixLibrary::kOwn, "own")}) {
          if (!has_library(library, dtype)) continue;
          const std::string title = cat("gemms/", tiny ? "tiny" : "small", "/",
                                        dtype == at::kFloat ? "f32" : "bf16", "/", name, "/", rows);
          benchmark::RegisterBenchmark(title.c_str(), bm_gemms,
                                       GemmBench{tiny, dtype, library, rows})
              ->UseRealTime();
        }
}

// One draw from a vocabulary of the given size; top-p is off or 0.9.
void bm_sampler(benchmark::State& state) {
  const int64_t vocab = state.range(0);
  std::vector<float> logits(vocab), row(vocab);
  RandomStream random(1, 2);
  for (float& logit : logits) logit = static_cast<float>(3 * random.normal());
  SamplingOptions options;
  if (state.range(1) != 0) options.top_p = 0.9;
  const std::vector<int32_t> none;
  uint64_t sample = 0;
  for (auto _ : state) {
    row = logits;
    benchmark::DoNotOptimize(sample_token(row.data(), vocab, options, {&none, &none, ++sample}));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bm_sampler)->Args({512, 0})->Args({152000, 0})->Args({152000, 1});

void bm_packing(benchmark::State& state) {
  std::vector<int64_t> counts;
  RandomStream random(3, 4);
  for (int64_t i = 0; i < state.range(0); ++i)
    counts.push_back(1 + static_cast<int64_t>(random.below(1024)));
  for (auto _ : state) benchmark::DoNotOptimize(cut_by_tokens(counts, 8192));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(bm_packing)->Arg(4096);

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  at::set_num_threads(2);
  braid::register_gemms();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

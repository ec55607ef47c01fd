// Micro-benchmarks of the hot functions at the sizes of a small model: attention, linear layers,
// sampler, packing.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "nn/kernels/kernels.h"
#include "program/deal.h"
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
  for (auto _ : state) benchmark::DoNotOptimize(attention(q, k, k, batch, 0.125, nullptr));
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
  for (auto _ : state) attention(q, k, v, batch, 0.125, nullptr).backward(grad);
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
  for (auto _ : state) benchmark::DoNotOptimize(attention(q, k, k, batch, 0.125, &layer));
  state.SetItemsProcessed(state.iterations() * 32);
}
BENCHMARK(bm_attention_decode)->Arg(128)->Arg(1024)->UseRealTime();

// x [rows, 512] times the joined gate and up matrix; items are floating-point operations.
void bm_linear(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({state.range(0), 512}), w = at::randn({2752, 512});
  const PackedLinear packed = pack_linear(w, false);
  for (auto _ : state) benchmark::DoNotOptimize(braid::linear(x, w, {}, &packed));
  state.SetItemsProcessed(state.iterations() * state.range(0) * 512 * 2752 * 2);
}
BENCHMARK(bm_linear)->Arg(8)->Arg(32)->Arg(256)->Arg(2048)->UseRealTime();

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
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

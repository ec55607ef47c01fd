// Passes of a model whose weights are slices (ZeRO-3), with the next layer's on their way while one
// computes beside gathers in their place, in one run.
// Usage: zero3_bench [RANKS [HIDDEN [TOKENS]]]
#include <ATen/ops/randint.h>

#include <algorithm>
#include <cstdio>

#include "nn/decoder.h"
#include "rank_bench.h"
#include "train/weight_shards.h"

namespace braid {
namespace {

constexpr int kRepeats = 7;
constexpr int64_t kLayers = 6, kHeads = 8, kVocabulary = 512;

ModelSpec spec_of(int64_t hidden) {
  ModelSpec spec;
  spec.family = "llama";
  spec.layers = kLayers, spec.heads = spec.kv_heads = kHeads, spec.vocab = kVocabulary;
  spec.hidden = hidden, spec.head_dim = hidden / kHeads, spec.intermediate = 4 * hidden;
  return spec;
}

// Keeps weights as WeightShards does, and gathers each unit where it is used.
class InPlace : public WeightKeeper {
 public:
  explicit InPlace(WeightShards& shards) : shards_(shards) {}
  void bring(int64_t unit) override { shards_.bring(unit); }
  void expect(int64_t) override {}
  void leave(int64_t unit) override { shards_.leave(unit); }
  void open(int64_t unit) override { shards_.open(unit); }
  void close(int64_t unit) override { shards_.close(unit); }

 private:
  WeightShards& shards_;
};

Status pass(Model& model, const TokenBatch& batch) {
  const at::Tensor loss = model.forward(batch, nullptr).sum();
  model.let_go();
  model.hold_head();
  loss.backward();
  model.let_go();
  return {};
}

Status run_rank(World& world, int64_t hidden, int64_t tokens) {
  BRAID_ASSIGN(Communicator* const all, world.everyone());
  BRAID_ASSIGN(const auto model, make_model(spec_of(hidden), {}));
  auto& decoder = dynamic_cast<Decoder&>(*model);
  WeightShards shards(decoder, *all, nullptr);
  InPlace in_place(shards);
  const TokenBatch batch =
      pack_sequences({std::vector<int32_t>(static_cast<size_t>(tokens), 1)}, at::kCPU);
  double best_s[2] = {1e9, 1e9};
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    for (const bool ahead : {false, true}) {
      decoder.set_keeper(ahead ? static_cast<WeightKeeper*>(&shards) : &in_place);
      BRAID_ASSIGN(const double taken_s, timed(*all, [&] { return pass(*model, batch); }));
      if (repeat > 0) best_s[ahead] = std::min(best_s[ahead], taken_s);
    }
  if (all->index() == 0)
    std::printf("%lld ranks, %lld x %lld, %lld tokens: in place %.1f ms  one ahead %.1f ms  %.2f\n",
                static_cast<long long>(all->size()), static_cast<long long>(kLayers),
                static_cast<long long>(hidden), static_cast<long long>(tokens), best_s[0] * 1e3,
                best_s[1] * 1e3, best_s[1] / best_s[0]);
  decoder.set_keeper(nullptr);
  return {};
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  using namespace braid;
  const int64_t hidden = argument(argc, argv, 2, 1024), tokens = argument(argc, argv, 3, 256);
  return run_ranks(argument(argc, argv, 1, 2), argc, argv,
                   [&](World& world) { return run_rank(world, hidden, tokens); });
}

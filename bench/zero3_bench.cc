// Passes of a model whose weights are slices (ZeRO-3), with the next layer's on their way while one
// computes beside gathers in their place, in one run.
// Usage: zero3_bench [RANKS [HIDDEN [TOKENS]]]
#include <ATen/ops/randint.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "nn/decoder.h"
#include "train/weight_shards.h"

namespace braid {
namespace {

constexpr int kRepeats = 7;
constexpr int64_t kLayers = 6, kHeads = 8, kVocabulary = 512;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

void pass(Model& model, const TokenBatch& batch) {
  const at::Tensor loss = model.forward(batch, nullptr).sum();
  model.let_go();
  model.hold_head();
  loss.backward();
  model.let_go();
}

Status run_rank(int64_t hidden, int64_t tokens) {
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  BRAID_ASSIGN(const auto world, World::join(*membership, {}));
  BRAID_ASSIGN(Communicator* const all, world->everyone());
  BRAID_ASSIGN(const auto model, make_model(spec_of(hidden), {}));
  auto& decoder = dynamic_cast<Decoder&>(*model);
  WeightShards shards(decoder, *all, nullptr);
  InPlace in_place(shards);
  const TokenBatch batch =
      pack_sequences({std::vector<int32_t>(static_cast<size_t>(tokens), 1)}, at::kCPU);
  double best[2] = {1e9, 1e9};
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    for (const bool ahead : {false, true}) {
      decoder.set_keeper(ahead ? static_cast<WeightKeeper*>(&shards) : &in_place);
      BRAID_TRY(all->barrier("a pass"));
      const double begin = seconds();
      pass(*model, batch);
      BRAID_TRY(all->barrier("a pass"));
      if (repeat > 0) best[ahead] = std::min(best[ahead], seconds() - begin);
    }
  if (all->index() == 0)
    std::printf("%lld ranks, %lld x %lld, %lld tokens: in place %.1f ms  one ahead %.1f ms  %.2f\n",
                static_cast<long long>(all->size()), static_cast<long long>(kLayers),
                static_cast<long long>(hidden), static_cast<long long>(tokens), best[0] * 1e3,
                best[1] * 1e3, best[1] / best[0]);
  decoder.set_keeper(nullptr);
  return world->leave();
}

int run(int argc, char** argv) {
  const int64_t ranks = argc > 1 ? std::atoi(argv[1]) : 2,
                hidden = argc > 2 ? std::atoi(argv[2]) : 1024,
                tokens = argc > 3 ? std::atoi(argv[3]) : 256;
  if (std::getenv("RANK") != nullptr) {
    const Status status = run_rank(hidden, tokens);
    if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", status.message().c_str());
    return exit_code(status.code());
  }
  LaunchOptions options;
  options.ranks = ranks;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe").string(), std::to_string(ranks),
                  std::to_string(hidden), std::to_string(tokens)};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  const auto code = launch_ranks(options);
  if (!code.ok()) std::fprintf(stderr, "braid: error: %s\n", code.status().message().c_str());
  return code.ok() ? *code : 1;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) { return braid::run(argc, argv); }

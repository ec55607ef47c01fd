// The simulator's model of the generation engine against the engine: given the lengths, the same
// rounds, tokens, preemptions' effects and pages. That is what lets the simulator repeat the
// instruction order of a recorded run.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include "base/rng.h"
#include "rollout/engine.h"
#include "sim/batching.h"

namespace braid {
namespace {

std::unique_ptr<Model> tiny_model() {
  at::set_num_threads(1);
  ModelSpec spec;
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.layers = 1, spec.hidden = 16, spec.intermediate = 16;
  spec.heads = 2, spec.kv_heads = 1, spec.head_dim = 8;
  spec.vocab = 31, spec.max_positions = 512;
  spec.dtype = "float32";
  return std::move(make_model(spec, {})).value();
}

std::vector<int32_t> prompt_of(int64_t length, int64_t group) {
  RandomStream random(static_cast<uint64_t>(group) + 1, 3);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(random.below(31)));
  return ids;
}

struct Counts {
  int64_t rounds = 0, peak_pages = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.rounds << " rounds, " << counts.peak_pages << " pages";
}

Counts engine_counts(Model& model, const std::vector<BatchRequest>& requests,
                     const EngineOptions& options) {
  const auto engine = std::move(Engine::create(model, options)).value();
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request;
    request.sample = SampleId{static_cast<int64_t>(i)};
    request.prompt_ids = prompt_of(requests[i].prompt, requests[i].group);
    request.sampling.max_new_tokens = requests[i].response;
    request.sampling.ignore_eos = true;
    const Status status = engine->submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status.message();
  }
  while (!engine->drained()) {
    const auto finished = engine->step();
    EXPECT_TRUE(finished.ok()) << finished.status().message();
    if (!finished.ok()) break;
  }
  return {engine->stats().steps, engine->stats().peak_pages};
}

Counts simulated_counts(const std::vector<BatchRequest>& requests, const EngineOptions& options) {
  BatchOptions batch;
  batch.kv_budget_tokens = options.kv_budget_tokens;
  batch.max_concurrent = options.max_concurrent;
  batch.max_batch_tokens = options.max_batch_tokens;
  Counts counts;
  counts.rounds = run_batches(requests, batch, [&](const BatchRound& round) {
    counts.peak_pages = std::max(counts.peak_pages, round.pages);
  });
  return counts;
}

TEST(SimulatedRounds, AreThoseOfTheEngine) {
  const std::unique_ptr<Model> model = tiny_model();
  RandomStream random(9, 0);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<BatchRequest> requests;
    int64_t longest = 0;
    for (int64_t group = 0; group < 4; ++group) {
      const auto prompt = static_cast<int64_t>(1 + random.below(110));
      for (int64_t k = 0; k < 3; ++k) {
        requests.push_back({prompt, static_cast<int64_t>(1 + random.below(60)), group});
        longest = std::max(longest, prompt + requests.back().response);
      }
    }
    EngineOptions options;
    options.max_concurrent = static_cast<int64_t>(1 + random.below(12));
    options.max_batch_tokens = static_cast<int64_t>(16 + random.below(200));
    if (trial % 2 == 0)
      options.kv_budget_tokens = (longest / 32 + 1 + static_cast<int64_t>(random.below(6))) * 32;
    EXPECT_EQ(simulated_counts(requests, options), engine_counts(*model, requests, options))
        << "trial " << trial << ", budget " << options.kv_budget_tokens << ", concurrent "
        << options.max_concurrent << ", batch " << options.max_batch_tokens;
  }
}

}  // namespace
}  // namespace braid

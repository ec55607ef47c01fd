#include "runtime/replica_round.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "comm/rank_testing.h"
#include "cost/own_engine.h"
#include "nn/test_models.h"

namespace braid {
namespace {

using testing::HasSubstr;

constexpr int64_t kNewTokens = 70;  // a round each: more than between two checks

struct Requests {
  size_t count = 3;
  int64_t max_concurrent = 2, new_tokens = kNewTokens;
  uint64_t seed = 5;
};

// Runs an engine until it is drained or fails; the tokens of its samples, or the failure.
Result<std::vector<std::vector<int32_t>>> tokens_of(Model& model, EngineRanks* ranks,
                                                    const Requests& requests) {
  EngineOptions options;
  options.max_concurrent = requests.max_concurrent;
  options.ranks = ranks;
  BRAID_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(model, options));
  std::vector<std::vector<int32_t>> out(requests.count);
  for (size_t i = 0; i < out.size(); ++i) {
    Request request;
    request.sample = SampleId{static_cast<int64_t>(i)};
    request.prompt_ids = {1, 2, static_cast<int32_t>(3 + i % 7)};
    for (size_t more = 0; more < i % 5; ++more) request.prompt_ids.push_back(4);
    request.sampling.max_new_tokens = requests.new_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.seed = requests.seed;
    BRAID_TRY(engine->submit(request));
  }
  while (!engine->drained()) {
    BRAID_ASSIGN(const std::vector<Generated> finished, engine->step());
    for (const Generated& sample : finished) out[sample.sample.value] = sample.response_ids;
  }
  return out;
}

// What this rank draws as one of a replica of two, and what it would draw alone.
struct Drawn {
  Result<std::vector<std::vector<int32_t>>> together, alone;
};

Drawn draw(World& world, const Strategy& strategy, const Requests& requests) {
  CallPlacement where;
  for (int rank = 0; rank < strategy.tp * strategy.pp; ++rank)
    where.mesh.devices.push_back(DeviceId{rank});
  where.strategy = strategy;
  ModelShape shape;
  const ModelSpec spec = small_spec("qwen2");
  shape.layers = spec.layers, shape.hidden = spec.hidden;
  const CallFrame frame{CallId{0}, CallKind::kGenerate, &where, &shape};
  const DeviceId self{static_cast<int>(world.global_rank())};
  const GridPosition at = position_in(where, self);
  const CallGroups groups = *connect_groups(frame, at, &world);
  const auto round = *ReplicaRound::create(frame, self, groups, **world.everyone());
  ModelOptions options;
  options.tensor_parallel = groups.tensor;
  const Interval layers = part_layers(strategy, spec.layers, at.stage);
  if (strategy.pp > 1) options.ranges = {{layers.begin, layers.end}};
  return {tokens_of(*small_model("qwen2", options), round.get(), requests),
          tokens_of(*small_model("qwen2"), nullptr, requests)};
}

RANK_TEST(ReplicaRound, StagesDrawTheTokensOfOneRank, 2) {
  Strategy strategy;
  strategy.pp = 2;
  const Drawn drawn = draw(world, strategy, {});
  ASSERT_TRUE(drawn.together.ok()) << drawn.together.status().message();
  EXPECT_EQ(*drawn.together, *drawn.alone);
  EXPECT_EQ(drawn.together->front().size(), static_cast<size_t>(kNewTokens));
}

// So many that a round is worth several passes of a stage: the bits of one.
RANK_TEST(ReplicaRound, BatchesThatTakeTurnsDrawTheTokensOfOne, 2) {
  Strategy strategy;
  strategy.pp = 2;
  const Requests many{3 * kRowsOfPass, 3 * kRowsOfPass, 8};
  const Drawn drawn = draw(world, strategy, many);
  ASSERT_TRUE(drawn.together.ok()) << drawn.together.status().message();
  EXPECT_EQ(*drawn.together, *drawn.alone);
}

RANK_TEST(ReplicaRound, RanksThatDrawAlikeAgree, 2) {
  Strategy strategy;
  strategy.tp = 2;
  const Drawn drawn = draw(world, strategy, {});
  EXPECT_TRUE(drawn.together.ok()) << drawn.together.status().message();
}

RANK_TEST(ReplicaRound, RanksThatDrawOtherTokensAreNoticed, 2) {
  Strategy strategy;
  strategy.tp = 2;
  Requests requests;
  requests.seed = static_cast<uint64_t>(world.global_rank());
  const Drawn drawn = draw(world, strategy, requests);
  EXPECT_THAT(drawn.together.status().message(), HasSubstr("drawn different tokens by round 64"));
}

}  // namespace
}  // namespace braid

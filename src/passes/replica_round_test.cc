#include "passes/replica_round.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "comm/rank_testing.h"
#include "device/tensor_memory.h"
#include "nn/test_models.h"
#include "passes/transfer_check.h"
#include "pricing/own_engine.h"
#include "program/verify_ops.h"

namespace braid::inline passes {
namespace {

using testing::HasSubstr;

constexpr int64_t kNewTokens = 70;  // a round each: more than between two checks

struct Requests {
  size_t count = 3;
  int64_t max_concurrent = 2, new_tokens = kNewTokens;
  uint64_t seed = 5;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t max_batch_tokens = 2048;
};

// Runs an engine until it is drained or fails; the tokens of its samples, or the failure. Counts
// how often it went on with less.
Result<std::vector<std::vector<int32_t>>> tokens_of(Model& model, EngineRanks* ranks,
                                                    const Requests& requests,
                                                    int64_t* cuts = nullptr) {
  EngineOptions options;
  options.max_concurrent = requests.max_concurrent;
  options.max_batch_tokens = requests.max_batch_tokens;
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
    request.sampling.top_k = requests.top_k, request.sampling.top_p = requests.top_p;
    BRAID_TRY(engine->submit(request));
  }
  while (!engine->drained()) {
    BRAID_ASSIGN(const std::vector<Generated> finished, engine->step());
    for (const Generated& sample : finished) out[sample.sample.value] = sample.response_ids;
  }
  if (cuts != nullptr) *cuts = engine->stats().cuts;
  return out;
}

// This rank of a replica.
struct Replica {
  CallPlacement where;
  ModelShape shape;
  std::unique_ptr<ReplicaRound> round;
  std::unique_ptr<Model> model;
};

// So large that two ranks draw from parts of it.
constexpr int64_t kLargeVocabulary = 5000;
ModelSpec spec_with(int64_t vocab) {
  ModelSpec spec = small_spec("qwen2");
  if (vocab > 0) spec.vocab = vocab;
  return spec;
}
std::unique_ptr<Model> model_of(const ModelSpec& spec, const ModelOptions& options = {}) {
  auto model = make_model(spec, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

// `shares_rows`: the model is one that other calls run with sequence parallelism.
std::unique_ptr<Replica> replica_of(World& world, const Strategy& strategy, int64_t vocab = 0,
                                    bool shares_rows = false) {
  auto out = std::make_unique<Replica>();
  CallPlacement& where = out->where;
  for (int rank = 0; rank < strategy.tp * strategy.pp; ++rank)
    where.mesh.devices.push_back(DeviceId{rank});
  where.strategy = strategy;
  const ModelSpec spec = spec_with(vocab);
  out->shape.layers = spec.layers, out->shape.hidden = spec.hidden;
  out->shape.kinds = kinds_of(tensor_map(spec));
  out->shape.widths = widths_of(Precision::kF32);
  check_transfers();
  const CallFrame frame{CallId{0}, CallKind::kGenerate, &where, &out->shape};
  const DeviceId self{static_cast<int>(world.global_rank())};
  const GridPosition at = position_in(where, self);
  const CallGroups groups = *connect_groups(frame, at, &world);
  EXPECT_TRUE(verify_round_of(frame, self, {1, 2, true, {1, 2}}).ok());
  out->round = ReplicaRound::create(frame, self, groups, **world.everyone());
  ModelOptions options;
  options.tensor_parallel = groups.tensor;
  options.tensor_parallel.sequence_parallel = shares_rows;
  const Interval layers = part_layers(strategy, spec.layers, at.stage);
  if (strategy.pp > 1) options.ranges = {{layers.begin, layers.end}};
  out->model = model_of(spec, options);
  return out;
}

// What this rank draws as one of a replica of two, and what it would draw alone.
struct Drawn {
  Result<std::vector<std::vector<int32_t>>> together, alone;
};

Drawn draw(World& world, const Strategy& strategy, const Requests& requests, int64_t vocab = 0,
           bool shares_rows = false) {
  const auto replica = replica_of(world, strategy, vocab, shares_rows);
  return {tokens_of(*replica->model, replica->round.get(), requests),
          tokens_of(*model_of(spec_with(vocab)), nullptr, requests)};
}

RANK_TEST(ReplicaRound, StagesDrawTheTokensOfOneRank, 2) {
  Strategy strategy;
  strategy.pp = 2;
  const Drawn drawn = draw(world, strategy, {});
  ASSERT_TRUE(drawn.together.ok()) << drawn.together.status().message();
  EXPECT_EQ(*drawn.together, *drawn.alone);
  EXPECT_EQ(drawn.together->front().size(), static_cast<size_t>(kNewTokens));
}

// A copy of the weights that sequence-parallel calls use too: rounds send what they list, which is
// what they send on a copy of their own, and draw the same.
void expect_whole_rows(World& world, int tp, int pp) {
  Strategy strategy;
  strategy.tp = tp, strategy.pp = pp;
  for (const int64_t vocab : {int64_t{0}, kLargeVocabulary}) {
    const Drawn drawn = draw(world, strategy, {}, vocab, true);
    ASSERT_TRUE(drawn.together.ok()) << drawn.together.status().message();
    EXPECT_EQ(*drawn.together, *draw(world, strategy, {}, vocab).together);
    EXPECT_EQ(*drawn.together, *drawn.alone);
  }
}
RANK_TEST(ReplicaRound, SequenceParallelCopySendsWhatIsListed, 2) {
  expect_whole_rows(world, 2, 1);
}
RANK_TEST(ReplicaRound, SequenceParallelCopyOfStagesSendsWhatIsListed, 4) {
  expect_whole_rows(world, 2, 2);
  expect_whole_rows(world, 4, 1);
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

RANK_TEST(ReplicaRound, PartsOfALargeVocabularyGiveTheTokensOfOneRank, 2) {
  Strategy strategy;
  strategy.tp = 2;
  for (const auto& [top_k, top_p] :
       {std::pair<int64_t, double>(0, 1), {20, 1}, {0, 0.9}, {0, 0.01}, {8, 0.5}}) {
    Requests requests;
    requests.top_k = top_k, requests.top_p = top_p;
    const Drawn drawn = draw(world, strategy, requests, kLargeVocabulary);
    ASSERT_TRUE(drawn.together.ok()) << drawn.together.status().message();
    EXPECT_EQ(*drawn.together, *drawn.alone) << top_k << " " << top_p;
  }
}

RANK_TEST(ReplicaRound, RanksThatDrawOtherTokensAreNoticed, 2) {
  Strategy strategy;
  strategy.tp = 2;
  Requests requests;
  requests.seed = static_cast<uint64_t>(world.global_rank());
  const Drawn drawn = draw(world, strategy, requests);
  EXPECT_THAT(drawn.together.status().message(), HasSubstr("drawn different tokens by round 64"));
}

// One rank lacks memory: both go on with less, to the same tokens.
void expect_less_memory_suffices(World& world, const Strategy& strategy, int64_t short_rank,
                                 double share = 0.9, int64_t vocab = 0,
                                 const Requests& requests = {}) {
  constexpr int64_t kRoomy = int64_t{1} << 40;
  count_tensor_memory();
  set_tensor_memory_limit(kRoomy);
  const auto replica = replica_of(world, strategy, vocab);
  const int64_t before = tensor_bytes();
  int64_t rise = 0, cuts = 0;
  const auto run = [&] {
    return tokens_of(*replica->model, replica->round.get(), requests, &cuts);
  };
  const auto roomy = [&] {
    const PeakMeter meter(at::kCPU);  // of the packed copies of weights too
    const auto tokens = run();
    rise = meter.most_bytes();
    return tokens;
  }();
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  EXPECT_EQ(cuts, 0);
  replica->model->rest();
  const bool here = world.global_rank() == short_rank;
  set_tensor_memory_limit(here ? before + static_cast<int64_t>(share * static_cast<double>(rise))
                               : kRoomy);
  const auto tokens = run();
  set_tensor_memory_limit(0);
  ASSERT_TRUE(tokens.ok()) << tokens.status().message();
  EXPECT_GT(cuts, 0);
  EXPECT_EQ(*tokens, *roomy);
}

RANK_TEST(ReplicaRound, ReplicaGoesOnWithLessWhereOneRankIsShort, 2) {
  Strategy stages, slices;
  stages.pp = 2;
  slices.tp = 2;
  for (const int64_t rank : {0, 1}) {
    expect_less_memory_suffices(world, stages, rank);
    expect_less_memory_suffices(world, slices, rank);
    // Most of it are packed weights, which one token needs too.
    expect_less_memory_suffices(world, slices, rank, 0.98, kLargeVocabulary);
  }
}

// Also where prompts take several rounds, in which no token is drawn.
RANK_TEST(ReplicaRound, ReplicaGoesOnWithLessInRoundsWithoutTokens, 2) {
  Strategy stages, slices;
  stages.pp = 2;
  slices.tp = 2;
  Requests pieces;
  pieces.count = 5, pieces.new_tokens = 3, pieces.max_batch_tokens = 4;
  for (const int64_t rank : {0, 1})
    for (const Strategy& strategy : {stages, slices})
      expect_less_memory_suffices(world, strategy, rank, 0.97, 0, pieces);
}

// Free memory is known or not: the ranks agree as often, and as the list's rule says.
RANK_TEST(ReplicaRound, AgreesAsOftenWhereFreeMemoryIsKnown, 2) {
  Strategy strategy;
  strategy.pp = 2;
  count_tensor_memory();
  for (const int64_t limit : {int64_t{0}, int64_t{1} << 40}) {
    set_tensor_memory_limit(limit);
    const auto replica = replica_of(world, strategy);
    TransferCounts counts;
    const auto tokens = [&] {
      const TransferWatch watch(&counts);
      return tokens_of(*replica->model, replica->round.get(), {});
    }();
    set_tensor_memory_limit(0);
    ASSERT_TRUE(tokens.ok()) << tokens.status().message();
    int64_t agreements = 0;
    for (const auto& [kind, count] : counts)
      if (kind.transfer == Transfer::kAllReduce && kind.bytes == 24) agreements += count;
    EXPECT_EQ(agreements, 2);  // two batches of requests, 70 rounds each
  }
}

}  // namespace
}  // namespace braid::inline passes

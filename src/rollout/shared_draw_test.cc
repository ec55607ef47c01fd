#include "rollout/shared_draw.h"

#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/rng.h"
#include "comm/communicator.h"
#include "comm/rank_testing.h"
#include "nn/shard.h"
#include "rollout/token_weights.h"

namespace braid::inline rollout {
namespace {

using testing::HasSubstr;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<float> random_row(int64_t vocab, uint64_t seed, double spread) {
  RandomStream random(seed, 0);
  std::vector<float> row(vocab);
  for (float& logit : row) logit = static_cast<float>(spread * random.normal());
  return row;
}

// Bit for bit, whatever the cut.
TEST(TokenWeights, PartsGiveTheSumsOfTheWholeRow) {
  for (const int64_t vocab : {4099, 6000, 9216, 20011}) {
    const std::vector<float> row = random_row(vocab, static_cast<uint64_t>(vocab), 3);
    const float top = largest_logit(row.data(), vocab);
    std::vector<float> whole = row;
    weigh(whole.data(), 0, vocab, vocab, top, 0.7);
    WeightLanes lanes{};
    const double expected = sum_blocks(whole.data(), 0, vocab, vocab, &lanes);
    SamplingOptions greedy;
    greedy.temperature = 0;
    const std::vector<int32_t> none;
    std::vector<float> drawn = row;
    std::vector<float> warm = row;
    weigh(warm.data(), 0, vocab, vocab, top, 1);
    const auto token = sample_token(drawn.data(), vocab, greedy, {&none, &none, 0});
    EXPECT_EQ(token->logprob,
              static_cast<float>(-std::log(sum_blocks(warm.data(), 0, vocab, vocab, &lanes))));
    for (const int64_t ranks : {2, 3, 4}) {
      double sum = 0;
      lanes = {};
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const IndexRange own = units_of_rank(vocab, {rank, ranks});
        std::vector<float> part(row.begin() + own.begin, row.begin() + own.end);
        weigh(part.data(), own.begin, own.size(), vocab, top, 0.7);
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + own.begin, own.size() * sizeof(float)),
                  0);
        sum += sum_blocks(part.data(), own.begin, own.end, vocab, &lanes);
      }
      EXPECT_NEAR(sum, expected, 1e-15 * expected) << vocab << " over " << ranks;
    }
  }
}

struct DrawCase {
  const char* name;
  SamplingOptions options;
  double spread = 2;
};

SamplingOptions with(double temperature, int64_t top_k = 0, double top_p = 1, double min_p = 0) {
  SamplingOptions out;
  out.temperature = temperature, out.top_k = top_k, out.top_p = top_p, out.min_p = min_p;
  return out;
}

std::vector<DrawCase> draw_cases() {
  std::vector<DrawCase> out = {{"greedy", with(0)},
                               {"all", with(1)},
                               {"hot", with(1.7)},
                               {"cold", with(0.3), 5},
                               {"flat", with(1), 0.01},
                               {"steep", with(1), 30},
                               {"top_k", with(0.9, 20)},
                               {"one", with(1, 1)},
                               {"top_p", with(1, 0, 0.9), 5},
                               {"top_k_p", with(1.1, 50, 0.8)},
                               {"narrow", with(1, 0, 0.05), 4},
                               {"min_p", with(1, 0, 1, 0.02)},
                               {"all_three", with(1, 64, 0.95, 0.05), 3},
                               {"wide_k", with(1, 1500)},
                               {"wide_p", with(1, 0, 0.99), 0.1}};
  out.push_back({"penalty", with(0.8)});
  out.back().options.repetition_penalty = 1.3;
  out.push_back({"masked", with(1, 30)});
  out.back().options.min_new_tokens = 8;
  out.back().options.stop_tokens = {5, 2600, 4000};
  return out;
}

// A row, what came before it, and its place among the random numbers.
struct DrawData {
  std::vector<float> logits;
  std::vector<int32_t> prompt, response;
};

void expect_same(World& world, int64_t vocab) {
  TensorParallelGroup group{world.global_rank(), world.world_size(), *world.everyone()};
  ASSERT_TRUE(shares_draws(vocab, group.tp_size));
  const IndexRange own = units_of_rank(vocab, group);
  int64_t gathered = 0, apart = 0, all = 0;
  for (const DrawCase& test : draw_cases()) {
    constexpr int64_t kRows = 40;
    SamplingOptions options = test.options;
    options.seed = 17;
    std::vector<DrawData> data(kRows);
    std::vector<DrawRow> rows;
    std::vector<float> parts;
    for (int64_t i = 0; i < kRows; ++i) {
      DrawData& row = data[i];
      row.logits = random_row(vocab, static_cast<uint64_t>(1000 + i), test.spread);
      if (i % 4 == 1)  // equal logits, on several ranks
        row.logits[7] = row.logits[vocab / 2] = row.logits[vocab - 1] = 9;
      row.prompt = {3, static_cast<int32_t>(vocab - 2)};
      for (int64_t j = 0; j < i % 6; ++j) row.response.push_back(static_cast<int32_t>(97 * j + i));
      parts.insert(parts.end(), row.logits.begin() + own.begin, row.logits.begin() + own.end);
    }
    for (int64_t i = 0; i < kRows; ++i)
      rows.push_back({&options, {&data[i].prompt, &data[i].response, static_cast<uint64_t>(i)}});
    SharedDraw draw(rows, vocab, group);
    const auto drawn = draw.run(at::from_blob(parts.data(), {kRows, own.size()}));
    const bool wide = std::string(test.name).rfind("wide", 0) == 0;
    EXPECT_EQ(draw.gathered_rows() > 0, wide) << test.name;
    gathered += draw.gathered_rows();
    for (int64_t i = 0; i < kRows; ++i) {
      const auto expected = sample_token(data[i].logits.data(), vocab, options, rows[i].context);
      ASSERT_TRUE(drawn[i].ok() && expected.ok()) << test.name;
      EXPECT_EQ(drawn[i]->token, expected->token) << test.name << " row " << i;
      EXPECT_FLOAT_EQ(drawn[i]->logprob, expected->logprob) << test.name << " row " << i;
      apart += drawn[i]->logprob != expected->logprob;
      ++all;
    }
  }
  EXPECT_LE(apart, all / 100);
  EXPECT_GT(gathered, 0);
}

RANK_TEST(SharedDraw, TwoRanksDrawTheTokensOfOne, 2) {
  for (const int64_t vocab : {4096, 5003, 9216}) expect_same(world, vocab);
}

RANK_TEST(SharedDraw, FourRanksDrawTheTokensOfOne, 4) {
  for (const int64_t vocab : {8192, 9001, 16401}) expect_same(world, vocab);
}

// Rows of one batch with options of their own, some of which cannot be drawn from.
RANK_TEST(SharedDraw, RowsFailByThemselves, 2) {
  constexpr int64_t kVocab = 4200;
  TensorParallelGroup group{world.global_rank(), 2, *world.everyone()};
  const IndexRange own = units_of_rank(kVocab, group);
  const std::vector<SamplingOptions> options = {with(0), with(1), with(1, 8), with(1, 0, 0.5),
                                                with(1)};
  std::vector<std::vector<float>> logits;
  for (uint64_t i = 0; i < options.size(); ++i) logits.push_back(random_row(kVocab, i, 3));
  logits[1][4000] = std::numeric_limits<float>::quiet_NaN();
  logits[2][10] = kInfinite;
  std::fill(logits[4].begin(), logits[4].end(), -kInfinite);
  const std::vector<int32_t> none;
  std::vector<DrawRow> rows;
  std::vector<float> parts;
  for (size_t i = 0; i < options.size(); ++i) {
    rows.push_back({&options[i], {&none, &none, i}});
    parts.insert(parts.end(), logits[i].begin() + own.begin, logits[i].begin() + own.end);
  }
  SharedDraw draw(rows, kVocab, group);
  const auto drawn =
      draw.run(at::from_blob(parts.data(), {static_cast<int64_t>(options.size()), own.size()}));
  for (size_t i = 0; i < options.size(); ++i) {
    const auto expected = sample_token(logits[i].data(), kVocab, options[i], rows[i].context);
    ASSERT_EQ(drawn[i].ok(), expected.ok()) << i;
    if (expected.ok())
      EXPECT_EQ(drawn[i]->token, expected->token) << i;
    else
      EXPECT_EQ(drawn[i].status().message(), expected.status().message()) << i;
  }
  EXPECT_THAT(drawn[1].status().message(), HasSubstr("not finite"));
}

// One rank lacks memory from some point on: all know, whatever they tell each other last.
RANK_TEST(SharedDraw, AllKnowThatARankLacksMemory, 2) {
  constexpr int64_t kVocab = 5000, kRows = 2;
  TensorParallelGroup group{world.global_rank(), 2, *world.everyone()};
  const IndexRange own = units_of_rank(kVocab, group);
  for (const SamplingOptions& options : {with(1), with(1, 16), with(0), with(1, 0, 0.99999)})
    for (const int64_t lacking : {-1, 0, 1}) {
      const std::vector<float> logits = random_row(own.size() * kRows, 5, 1);
      const std::vector<int32_t> none;
      std::vector<DrawRow> rows;
      for (uint64_t i = 0; i < kRows; ++i) rows.push_back({&options, {&none, &none, i}});
      SharedDraw draw(rows, kVocab, group);
      const bool lacks = lacking == world.global_rank();
      const auto part = at::from_blob(const_cast<float*>(logits.data()), {kRows, own.size()});
      const auto drawn = draw.run(lacks ? at::zeros_like(part) : part, lacks);
      EXPECT_EQ(draw.ran_out(), lacking >= 0) << options.top_k << " " << options.top_p;
      EXPECT_TRUE(draw.ran_out() || drawn[0].ok());
      // It has ended: nobody can be told any more.
      if (lacking >= 0) continue;
      EXPECT_EQ(draw.run(part, true)[0].status().code(), Code::kOutOfMemory);
    }
}

RANK_TEST(SharedDraw, GatheredLogitsSayThatARankLacksMemory, 2) {
  TensorParallelGroup group{world.global_rank(), 2, *world.everyone()};
  for (const int64_t lacking : {-1, 0, 1}) {
    const at::Tensor own = at::full({3, units_of_rank(7, group).size()}, 2.5);
    const auto whole = gather_logits(own, 7, group, lacking == world.global_rank());
    EXPECT_EQ(whole.has_value(), lacking < 0);
    if (whole) {
      EXPECT_TRUE(at::equal(*whole, at::full({3, 7}, 2.5)));
    }
  }
}

// Bytes that the ranks told each other, against those of the logits.
RANK_TEST(SharedDraw, TellsWhatItListsOfARow, 2) {
  constexpr int64_t kVocab = 20000, kRows = 3;
  Communicator& all = **world.everyone();
  TensorParallelGroup group{world.global_rank(), 2, &all};
  const IndexRange own = units_of_rank(kVocab, group);
  for (const SamplingOptions& options : {with(1), with(1, 16), with(0)}) {
    const std::vector<float> logits = random_row(own.size() * kRows, 5, 2);
    const std::vector<int32_t> none;
    std::vector<DrawRow> rows;
    for (uint64_t i = 0; i < kRows; ++i) rows.push_back({&options, {&none, &none, i}});
    const SamplingNeeds needs = sampling_needs(rows);
    TransferCounts counts;
    {
      const TransferWatch watch(&counts);
      SharedDraw draw(rows, kVocab, group);
      draw.run(at::from_blob(const_cast<float*>(logits.data()), {kRows, own.size()}));
    }
    int64_t bytes = 0;
    for (const auto& [kind, count] : counts) bytes += count * kind.bytes;
    const int64_t found = needs.scans ? kFoundNumbers : 0;
    EXPECT_EQ(bytes, kRows * (kTopNumbers * 4 + 2 * kWeightLanes * 4 +
                              2 * 8 * (sum_numbers(needs) + found)));
    EXPECT_LT(bytes, kRows * kVocab * 4 / 50);
  }
}

}  // namespace
}  // namespace braid::inline rollout

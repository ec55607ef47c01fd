// Cutting a list of samples into micro-batches by a token budget, and what of a group meets there.
#include "program/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "program/near_parts.h"
#include "program/partition_options.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;

// A reproducible number in [-1, 1].
double wave(int64_t seed, int64_t index) {
  return std::sin(12.9898 * static_cast<double>(index) + 78.233 * static_cast<double>(seed));
}

// More mini-batches than there are groups: none is empty, as an empty one would be an update.
TEST(PartitionMinibatches, OfWholeGroupsNoneIsEmpty) {
  std::vector<PartitionSample> samples;
  for (int64_t i = 0; i < 12; ++i) samples.push_back({SampleId{i}, GroupId{i / 4}, 10, 10, true});
  PartitionOptions options;
  options.trains = true, options.whole_groups = true, options.minibatches = 8;
  const std::vector<SampleRows> partition = partition_minibatches(samples, options);
  EXPECT_EQ(partition.size(), 3u);
  for (const SampleRows& rows : partition) EXPECT_EQ(rows.size(), 4u);
}

// Pairs stay together where they train; groups of generated samples were compared before.
TEST(PartitionOptionsOfCalls, FollowFromGraphCallAndStep) {
  for (const auto& [name, whole] : {std::pair("grpo", false), std::pair("dpo", true)}) {
    AlgorithmOptions algorithm;
    algorithm.name = name;
    const Graph graph = *make_graph(algorithm);
    for (const Call& call : graph.calls) {
      const PartitionOptions options = partition_options(graph, call, {.minibatches = 3});
      EXPECT_EQ(options.trains, call.kind == CallKind::kTrainStep) << call.name;
      EXPECT_EQ(options.whole_groups, whole && options.trains) << name << ", " << call.name;
      EXPECT_EQ(options.minibatches, 3);
      EXPECT_TRUE(options.keep_near);
      EXPECT_FALSE(partition_options(graph, call, {.train_engine = "verl"}).keep_near);
    }
  }
}

TEST(CutByTokens, FillsInOrderWithinTheBudget) {
  EXPECT_THAT(cut_by_tokens({3, 3, 2, 9, 1, 1, 6}, 8),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3), ElementsAre(4, 5, 6)));
  EXPECT_TRUE(cut_by_tokens({}, 8).empty());
  EXPECT_THAT(cut_by_tokens({20, 30}, 8), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(CutByTokens, KeepsItsPropertiesOnManyInputs) {
  for (int64_t seed = 0; seed < 50; ++seed) {
    std::vector<int64_t> counts;
    for (int64_t i = 0; i < 40; ++i)
      counts.push_back(1 + static_cast<int64_t>(60 * std::abs(wave(seed, i))));
    int32_t next = 0;
    int64_t previous_total = 0;
    for (const auto& micro_batch : cut_by_tokens(counts, 64)) {
      int64_t total = 0;
      for (const int32_t sample : micro_batch) {
        EXPECT_EQ(sample, next++);
        total += counts[sample];
      }
      EXPECT_TRUE(total <= 64 || micro_batch.size() == 1);
      // Greedy: the first sample did not fit into the micro-batch before.
      if (previous_total > 0) {
        EXPECT_GT(previous_total + counts[micro_batch[0]], 64);
      }
      previous_total = total;
    }
    EXPECT_EQ(next, static_cast<int32_t>(counts.size()));
  }
}

// Prompts of 10 tokens, responses of 2 to 5.
std::vector<PartitionSample> groups_of(int64_t groups, int64_t each) {
  std::vector<PartitionSample> out;
  for (int64_t i = 0; i < groups * each; ++i)
    out.push_back({SampleId{i}, GroupId{i / each}, 10, 2 + i % 4});
  return out;
}

struct SharedCase {
  int64_t groups, each;
  int dp;
  int64_t micro_batches, micro_tokens;
  int64_t prompts;  // computed by all ranks together
};

class SharedPrompts : public testing::TestWithParam<SharedCase> {
 protected:
  SharedPrompts() : samples_(groups_of(GetParam().groups, GetParam().each)) {
    strategy_.dp = GetParam().dp;
    strategy_.micro_batches = GetParam().micro_batches;
    strategy_.micro_tokens = GetParam().micro_tokens;
    options_.share_prompts = true;
  }
  std::vector<PartitionSample> samples_;
  Strategy strategy_;
  PartitionOptions options_;
};

// Ranks have as many samples each, budgets hold, and prompts are computed once for each part of a
// group that shares or budgets cut off.
TEST_P(SharedPrompts, KeepWhatSharesAndBudgetsAllowOfAGroupTogether) {
  const SharedCase& c = GetParam();
  const MiniBatch batch = partition_samples(samples_, strategy_, options_).minibatches[0];
  int64_t tokens = 0, responses = 0;
  for (const PartitionSample& sample : samples_) responses += sample.response;
  for (size_t rank = 0; rank < batch.micro_batches.size(); ++rank) {
    size_t count = 0;
    for (const SampleRows& rows : batch.micro_batches[rank]) count += rows.size();
    EXPECT_EQ(count, c.groups * c.each / c.dp) << "rank " << rank;
    if (c.micro_tokens == 0) {
      EXPECT_EQ(batch.micro_batches[rank].size(), c.micro_batches);
    }
    for (const int64_t of_batch : batch.tokens[rank]) {
      tokens += of_batch;
      if (c.micro_tokens > 0) {
        EXPECT_LE(of_batch, c.micro_tokens);
      }
    }
  }
  EXPECT_EQ(tokens, 10 * c.prompts + responses);
}

INSTANTIATE_TEST_SUITE_P(Partitions, SharedPrompts,
                         testing::Values(SharedCase{6, 4, 1, 1, 0, 6}, SharedCase{6, 4, 2, 3, 0, 6},
                                         SharedCase{3, 4, 2, 1, 0, 4}, SharedCase{1, 8, 4, 1, 0, 4},
                                         SharedCase{4, 4, 1, 8, 0, 8},
                                         SharedCase{2, 8, 1, 1, 24, 4},
                                         SharedCase{1, 8, 1, 1, 30, 2},
                                         SharedCase{2, 2, 1, 1, 100, 2},
                                         SharedCase{1, 4, 2, 1, 16, 4}));

// Which samples an optimizer step learns from does not depend on it.
TEST(SharedPromptsTest, ChangeNoMembership) {
  const auto samples = groups_of(5, 4);
  PartitionOptions options;
  options.trains = true, options.minibatches = 2, options.seed = 9;
  const auto apart = partition_minibatches(samples, options);
  options.share_prompts = true;
  EXPECT_EQ(partition_minibatches(samples, options), apart);
}

// Where their passes meet, ranks pass as often each: with ZeRO-3 they gather weights together, with
// expert parallelism they exchange tokens.
class PassesMeet : public ::testing::TestWithParam<Strategy> {};

TEST_P(PassesMeet, RanksHaveAsManyMicroBatches) {
  Strategy strategy = GetParam();
  strategy.dp = 2;
  PartitionOptions options;
  options.share_prompts = true;
  for (int64_t groups = 2; groups < 8; ++groups)
    for (int64_t each = 2; each < 9; ++each)
      for (int64_t budget = 20; budget < 140; budget += 3) {
        const auto samples = groups_of(groups, each);
        strategy.micro_tokens = budget, strategy.in_order = budget % 2 == 0;
        const MiniBatch batch = partition_samples(samples, strategy, options).minibatches[0];
        EXPECT_EQ(batch.micro_batches[0].size(), batch.micro_batches[1].size())
            << groups << " groups of " << each << ", " << budget << " tokens";
      }
}

Strategy zero_3() {
  Strategy out;
  out.zero_stage = 3;
  return out;
}
Strategy experts_apart() {
  Strategy out;
  out.ep = 2;
  return out;
}
INSTANTIATE_TEST_SUITE_P(Partitions, PassesMeet, testing::Values(zero_3(), experts_apart()));

// Groups of 8 with responses of other lengths, 64 samples for each rank.
std::vector<PartitionSample> samples_for(int64_t ranks) {
  std::vector<PartitionSample> out;
  for (int64_t i = 0; i < 64 * ranks; ++i)
    out.push_back(
        {SampleId{i}, GroupId{i / 8}, 100, 100 + static_cast<int64_t>(400 * std::abs(wave(3, i)))});
  return out;
}

int64_t fullest(const MiniBatch& batch) {
  int64_t most = 0;
  for (const std::vector<int64_t>& of_rank : batch.tokens)
    most = std::max(most, std::accumulate(of_rank.begin(), of_rank.end(), int64_t{0}));
  return most;
}

// From how many others each rank has samples, [rank].
std::vector<size_t> sources(const Partition& partition, int64_t samples) {
  const auto ranks = std::ssize(partition.owned);
  std::vector<size_t> out;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::set<int64_t> others;
    for (int64_t other = 0; other < ranks; ++other)
      for (const int64_t row : partition.owned[rank])
        if (other != rank && row >= run_begin(samples, other, ranks) &&
            row < run_begin(samples, other + 1, ranks))
          others.insert(other);
    out.push_back(others.size());
  }
  return out;
}

class KeptNear : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  KeptNear() : samples_(samples_for(std::get<0>(GetParam()))) {
    strategy_.dp = std::get<0>(GetParam());
    options_.trains = true, options_.minibatches = 2;
    options_.share_prompts = std::get<1>(GetParam());
  }
  Partition partition(bool near) {
    options_.keep_near = near;
    return partition_samples(samples_, strategy_, options_);
  }
  std::vector<PartitionSample> samples_;
  Strategy strategy_;
  PartitionOptions options_;
};

// A rank works on samples of few others, as few in a large job as in a small one.
TEST_P(KeptNear, RanksHaveSamplesOfFewOthers) {
  const std::vector<size_t> others = sources(partition(true), std::ssize(samples_));
  EXPECT_LE(std::accumulate(others.begin(), others.end(), size_t{0}), 4 * others.size());
  EXPECT_LE(*std::max_element(others.begin(), others.end()), 12U);
}

TEST_P(KeptNear, ShareTheLoadAsWell) {
  const Partition near = partition(true), by_load = partition(false);
  ASSERT_EQ(near.minibatches.size(), by_load.minibatches.size());
  for (size_t i = 0; i < near.minibatches.size(); ++i) {
    EXPECT_EQ(near.minibatches[i].rows, by_load.minibatches[i].rows);
    EXPECT_LE(fullest(near.minibatches[i]), fullest(by_load.minibatches[i]) * 65 / 64);
  }
}

// So what a call has found of a sample is there where it trains.
TEST_P(KeptNear, OtherCallsHaveTheSamplesThatRanksTrain) {
  options_.step = 3, options_.seed = 5, options_.epochs = 2;
  const Partition trained = partition(true);
  options_.trains = false;
  const Partition inferred = partition(true), by_load = partition(false);
  ASSERT_EQ(inferred.minibatches.size(), 1U);
  EXPECT_LE(fullest(inferred.minibatches[0]), fullest(by_load.minibatches[0]) * 65 / 64);
  std::vector<SampleRows> first(trained.owned.size());
  for (const MiniBatch& minibatch : trained.minibatches)
    for (size_t rank = 0; rank < first.size() && minibatch.epoch == 0; ++rank)
      for (const SampleRows& rows : minibatch.micro_batches[rank])
        first[rank].insert(first[rank].end(), rows.begin(), rows.end());
  for (SampleRows& rows : first) std::sort(rows.begin(), rows.end());
  EXPECT_EQ(inferred.owned, first);
}

TEST_P(KeptNear, EverySampleIsOfOneRank) {
  const Partition near = partition(true);
  EXPECT_EQ(near, partition(true));
  std::multiset<int32_t> rows;
  for (const SampleRows& owned : near.owned) rows.insert(owned.begin(), owned.end());
  ASSERT_EQ(rows.size(), samples_.size());
  EXPECT_EQ(std::set<int32_t>(rows.begin(), rows.end()).size(), samples_.size());
}

INSTANTIATE_TEST_SUITE_P(Partitions, KeptNear,
                         testing::Combine(testing::Values(8, 32, 96), testing::Bool()));

// Looking at every part to find the fullest, each time that one gives, takes its square: 16 times
// as many parts are looked at 16 times as often, about.
TEST(KeptNearTest, PartsAreLookedAtInProportionToTheirNumber) {
  const auto looks_at = [](int64_t parts) {
    std::vector<int64_t> tokens;
    std::vector<int32_t> homes;
    for (int64_t i = 0; i < 24 * parts; ++i) {
      tokens.push_back(100 + static_cast<int64_t>(400 * std::abs(wave(3, i))));
      homes.push_back(static_cast<int32_t>(i / 24));
    }
    int64_t out = 0;
    near_parts(tokens, homes, parts, &out);
    return out;
  };
  const int64_t few = looks_at(64), many = looks_at(1024);
  EXPECT_GE(few, 64);
  EXPECT_LE(many, 2 * 16 * few);
}

// Where passing on what is over does not make ranks even, load alone counts: all that is long is at
// the begin.
TEST(KeptNearTest, LoadCountsWhereNeighboursAreUneven) {
  std::vector<PartitionSample> samples;
  for (int64_t i = 0; i < 32; ++i)
    samples.push_back({SampleId{i}, GroupId{i}, 10, i < 16 ? 990 : 90});
  Strategy strategy;
  strategy.dp = 16;
  PartitionOptions options;
  options.keep_near = true;
  EXPECT_EQ(fullest(partition_samples(samples, strategy, options).minibatches[0]), 1100);
}

// As many ranks as samples of one length: each keeps its own, and none is without.
TEST(KeptNearTest, EqualSamplesStay) {
  std::vector<PartitionSample> samples;
  for (int64_t i = 0; i < 16; ++i) samples.push_back({SampleId{i}, GroupId{i}, 10, 90});
  Strategy strategy;
  strategy.dp = 8;
  PartitionOptions options;
  options.keep_near = true;
  const Partition partition = partition_samples(samples, strategy, options);
  for (int32_t rank = 0; rank < 8; ++rank)
    EXPECT_THAT(partition.owned[rank], ElementsAre(2 * rank, 2 * rank + 1));
}

TEST(SharedPromptsTest, TheFirstOfAGroupHasItsPrompt) {
  const auto samples = groups_of(2, 2);
  EXPECT_THAT(packed_lengths({2, 0, 1, 3}, samples, true),
              ElementsAre(PackedLength{14, 0}, PackedLength{12, 0}, PackedLength{13, 10},
                          PackedLength{15, 10}));
  EXPECT_THAT(packed_lengths({0, 1}, samples, false),
              ElementsAre(PackedLength{12, 0}, PackedLength{13, 0}));
}

// The longest first, to who has the least; as many to each.
TEST(PartitionRequests, PredictedTokensAreEven) {
  Strategy strategy;
  strategy.dp = 2;
  EXPECT_THAT(partition_requests({9, 8, 1, 2, 3, 1}, 1, strategy),
              ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1, 4, 5)));
  // Groups of two stay together where both replicas have whole ones, halves of them else.
  EXPECT_THAT(partition_requests({4, 4, 9, 9, 1, 1, 5, 5}, 2, strategy),
              ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(0, 1, 6, 7)));
  EXPECT_THAT(partition_requests({4, 4, 9, 9, 1, 1}, 2, strategy),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
}

TEST(PartitionRequests, EverySampleIsPredictedForOneReplica) {
  for (int64_t seed = 0; seed < 50; ++seed) {
    Strategy strategy;
    strategy.dp = static_cast<int>(1 + seed % 5);
    const int64_t group = 1 + seed % 3, samples = group * (5 + seed % 7);
    std::vector<int64_t> predicted;
    for (int64_t i = 0; i < samples; ++i)
      predicted.push_back(static_cast<int64_t>(100 * (1 + wave(seed, i))));
    SampleRows all;
    for (const SampleRows& rows : partition_requests(predicted, group, strategy)) {
      EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
      EXPECT_LE(std::abs(std::ssize(rows) * strategy.dp - samples), strategy.dp);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(std::ssize(all), samples);
    for (int64_t i = 0; i < samples; ++i) EXPECT_EQ(all[i], i);
  }
}

}  // namespace
}  // namespace braid::inline program

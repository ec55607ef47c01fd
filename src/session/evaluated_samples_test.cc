// What of an evaluation comes to which rank: lengths to all, tokens to those that need them.
#include "session/evaluated_samples.h"

#include <gtest/gtest.h>

#include "comm/rank_testing.h"

namespace braid::inline session {
namespace {

// Of response i: i + 1 tokens, to a prompt of i + 2; every third was cut.
Generated response_to(int64_t number) {
  Generated out;
  out.sample = SampleId{number};
  out.prompt_ids.assign(number + 2, 1);
  out.response_ids.assign(number + 1, static_cast<int32_t>(10 + number));
  out.finish = number % 3 == 0 ? Finish::kLength : Finish::kStop;
  return out;
}

void expect_response(const Generated& is, int64_t number) {
  EXPECT_EQ(is.sample, SampleId{number});
  EXPECT_EQ(is.response_ids, response_to(number).response_ids);
  EXPECT_EQ(is.finish, response_to(number).finish);
}

// Rank 0 has drawn the first two of five responses, rank 2 the others; rank 1 scores one of each,
// and by a graph that has no such fields of its own.
RANK_TEST(EvaluatedSamples, TokensComeToWhoScoresThemAndToTheFirstRank, 3) {
  Communicator* const all = *world.everyone();
  const int64_t rank = world.global_rank();
  const std::vector<SampleRows> drawn = {{0, 1}, {}, {2, 3, 4}};
  const Field scores{"score", FieldType::kReal, FieldShape::kPerSample};
  Graph graph = *make_graph(default_options("rm"));
  graph.calls.back().writes.push_back(scores);
  EvaluatedSamples samples(graph, all, 5, 2, drawn);
  std::vector<Generated> mine;
  for (const int32_t number : drawn[rank]) mine.push_back(response_to(number));
  ASSERT_EQ(samples.share(mine).message(), "");
  EXPECT_EQ(samples.store().response_lens(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(samples.store().prompt_lens(), (std::vector<int64_t>{2, 3, 4, 5, 6}));
  EXPECT_EQ(samples.store().sample(3).group, GroupId{1});

  const auto come = [&] {
    const int64_t bytes = all->traffic(Transfer::kReceive).received;
    all->reset_traffic();
    return bytes;
  };
  (void)come();
  ASSERT_EQ(samples.bring({{}, {1, 3}, {}}).message(), "");
  EXPECT_EQ(come(), rank == 1 ? (2 + 4 + 2) * 4 : 0);  // their tokens and flags
  std::map<size_t, double> found;
  if (rank == 1) {
    const auto here = samples.responses({1, 3});
    ASSERT_TRUE(here.ok()) << here.status().message();
    expect_response((*here)[0], 1);
    expect_response((*here)[1], 3);
    found = {{1, 0.5}, {3, -2}};
  }
  ASSERT_EQ(samples.put(scores, {{}, {1, 3}, {}}, found).message(), "");

  ASSERT_EQ(samples.bring_to_first().message(), "");
  if (rank != 0) {
    EXPECT_EQ(come(), 0);
    return;
  }
  const auto whole = samples.responses(samples.store().all_rows());
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  for (int64_t number = 0; number < 5; ++number) expect_response((*whole)[number], number);
  EXPECT_EQ(samples.store().reals(scores.name, {1})->item<float>(), 0.5F);
  EXPECT_EQ(samples.store().reals(scores.name, {3})->item<float>(), -2);
}

TEST(EvaluatedSamples, AreThereInOneProcess) {
  EvaluatedSamples samples(*make_graph(default_options("sft")), nullptr, 3, 1, {{0, 1, 2}});
  ASSERT_EQ(samples.share({response_to(2), response_to(0), response_to(1)}).message(), "");
  ASSERT_EQ(samples.bring_to_first().message(), "");
  const auto all = samples.responses({0, 1, 2});
  ASSERT_TRUE(all.ok()) << all.status().message();
  for (int64_t number = 0; number < 3; ++number) expect_response((*all)[number], number);
}

}  // namespace
}  // namespace braid::inline session

#include "samples/drawn_groups.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "algo/batch.h"

namespace braid::inline samples {
namespace {

using testing::ElementsAre;

Graph drawing_graph() {
  AlgorithmOptions options;
  options.name = "grpo";
  options.dynamic_sampling = true;
  return *make_graph(options);
}

// Groups of two samples from `first` on; this rank has generated those of the last group alone.
SampleStore draw(const Graph& graph, int64_t first, int64_t groups) {
  SampleStore store(graph);
  std::vector<StoredSample> samples;
  TokenLists prompts;
  for (int64_t i = 0; i < 2 * groups; ++i) {
    samples.push_back({SampleId{2 * first + i}, GroupId{first + i / 2}, "", Json::object(), {}});
    prompts.push_back({static_cast<int32_t>(first + i / 2)});
  }
  store.begin(std::move(samples));
  EXPECT_TRUE(store.put_tokens("prompt_ids", store.all_rows(), std::move(prompts)).ok());
  if (groups == 0) return store;
  const auto rows = static_cast<size_t>(2 * groups);
  const Rows own = {rows - 2, rows - 1};
  EXPECT_TRUE(store.put_tokens("response_ids", own, {{1, 2}, {3}}).ok());
  EXPECT_TRUE(store.put_reals("sampler_logprobs", own, at::tensor({-1.0f, -2.0f, -3.0f})).ok());
  std::vector<int64_t> lens(rows, 1);
  lens[rows - 2] = 2;
  store.set_counts("response_lens", lens);
  std::vector<float> rewards(rows, static_cast<float>(first));
  EXPECT_TRUE(store.put_reals("rewards", store.all_rows(), at::tensor(rewards)).ok());
  return store;
}

FieldHoldings holdings(const SampleStore& store) {
  FieldHoldings out(2);
  SampleRows first, last;
  for (size_t row = 0; row < store.size(); ++row)
    (row + 2 < store.size() ? first : last).push_back(static_cast<int32_t>(row));
  out.note("response_ids", {first, last}, store.size());
  return out;
}

TEST(DrawnGroups, SignalIsADifferenceWithinAGroup) {
  EXPECT_THAT(with_signal({1, 1, 0, 1, 2, 1}, {7, 7, 8, 8, 9, 7}),
              ElementsAre(false, false, true, true, false, false));
  EXPECT_THAT(of_first_groups({7, 7, 5, 5, 9}, 2), ElementsAre(true, true, true, true, false));
}

// Samples of ranks that told each other their lengths join others whose prompts are here.
TEST(DrawnGroups, CountsThatWereSaidOfSomeFollowFromTheTokensOfOthers) {
  const Graph graph = drawing_graph();
  SampleStore said = draw(graph, 1, 1);
  said.set_counts(kPromptLens, {7, 7});
  SampleStore all = draw(graph, 0, 1);
  all.append(said);
  all.append(draw(graph, 2, 1));
  all.append(said);
  EXPECT_THAT(all.counts(kPromptLens), ElementsAre(1, 1, 7, 7, 1, 1, 7, 7));
}

TEST(DrawnGroups, KeepsTheFirstOnesInTheOrderOfTheDraws) {
  const Graph graph = drawing_graph();
  DrawnGroups drawn;
  drawn.begin();
  for (const int64_t first : {10, 20, 30}) {
    SampleStore store = draw(graph, first, first == 20 ? 0 : 2);
    FieldHoldings held = first == 20 ? FieldHoldings(2) : holdings(store);
    drawn.take(std::move(store), std::move(held));
  }
  EXPECT_EQ(drawn.draws(), 3);
  EXPECT_EQ(drawn.groups(), 4);
  SampleStore store(graph);
  FieldHoldings held(2);
  drawn.give(3, &store, &held);
  ASSERT_EQ(store.size(), 6u);
  EXPECT_THAT(store.counts("groups"), ElementsAre(10, 10, 11, 11, 30, 30));
  EXPECT_THAT(store.counts("response_lens"), ElementsAre(1, 1, 2, 1, 1, 1));
  EXPECT_EQ((**store.tokens("prompt_ids"))[4], std::vector<int32_t>{30});
  EXPECT_THAT(store.rows_with("sampler_logprobs"), ElementsAre(2, 3));
  EXPECT_THAT(to_doubles(*store.reals("rewards", store.all_rows())),
              ElementsAre(10, 10, 10, 10, 30, 30));
  EXPECT_THAT(held.speakers("response_ids"), ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(drawn.groups(), 0);
}

}  // namespace
}  // namespace braid::inline samples

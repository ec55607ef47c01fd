// What ranks give to the backends to bring fields to each other beside what the moves list.
#include "samples/field_exchange.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>

#include "comm/rank_testing.h"
#include "comm/transfer_audit.h"
#include "dataflow/graph.h"
#include "program/listed_messages.h"
#include "samples/listed_counts.h"

namespace braid::inline samples {
namespace {

using testing::ElementsAre;
using testing::Pair;

Field field_named(const Graph& graph, const std::string& name) {
  for (const Call& call : graph.calls)
    for (const Field& field : call.writes)
      if (field.name == name) return field;
  return {};
}

// Two rows each; of those that a rank needs and lacks, one is empty and one goes with another.
RANK_TEST(FieldExchange, SendsWhatTheMovesList, 2) {
  const Graph graph = *make_graph(default_options("grpo"));
  SampleStore store(graph);
  store.begin(std::vector<StoredSample>(4));
  const std::vector<int64_t> lens = {3, 0, 5, 2};
  const auto self = static_cast<int32_t>(world.global_rank());
  TokenLists own;
  for (const int64_t len : {lens[2 * self], lens[2 * self + 1]}) own.emplace_back(len, self + 1);
  const Field field = field_named(graph, "response_ids");
  ASSERT_TRUE(store.put_tokens(field.name, {size_t(2 * self), size_t(2 * self + 1)}, own).ok());
  store.set_counts(field.sizes, lens);
  FieldExchange exchange(*world.everyone(), store);
  exchange.holdings().note(field.name, {{0, 1}, {2, 3}}, lens.size());
  const auto moves = exchange.moves({field}, {{0, 2}, {0, 1, 2, 3}}, {});
  const auto listed = messages_of(moves, exchange.known({field}), DeviceId{self});
  const ListedMessage given{OpKind::kSend, DeviceId{1}, 12},
      taken{OpKind::kReceive, DeviceId{1}, 20}, got{OpKind::kReceive, DeviceId{0}, 12},
      sent{OpKind::kSend, DeviceId{0}, 20};
  if (self == 0)
    EXPECT_THAT(listed, ElementsAre(given, taken));
  else
    EXPECT_THAT(listed, ElementsAre(got, sent));
  TransferCounts expected, counted;
  add_listed(listed, kFieldChannel, &expected);
  {
    const TransferWatch watch(&counted);
    exchange.start(0, {field}, moves);
  }
  ASSERT_EQ(exchange.arrive(0).message(), "");
  ASSERT_EQ(exchange.end_step().message(), "");
  EXPECT_EQ(transfer_differences(expected, counted), "");
  EXPECT_EQ((**store.tokens(field.name))[self == 0 ? 2 : 0],
            (std::vector<int32_t>(self == 0 ? 5 : 3, self == 0 ? 2 : 1)));
  // Lists that say other lengths, or fewer rows.
  expected.begin()->second += 1;
  EXPECT_NE(transfer_differences(expected, counted), "");
}

// A long text of one rank is not room for so much of every rank.
RANK_TEST(FieldExchange, TextsOfAllRanks, 4) {
  SampleStore store(*make_graph(default_options("grpo")));
  FieldExchange exchange(*world.everyone(), store);
  const auto self = static_cast<size_t>(world.global_rank());
  const std::string zeros("\0\xff\0", 3), big(1000, '\xfe');
  const std::vector<std::vector<std::string>> cases = {
      {"", "", "", ""}, {"a", "bc", zeros, "d"}, {"=", "=", big, "="}, {big, "", zeros, ""}};
  for (const std::vector<std::string>& texts : cases) {
    TransferCounts counted;
    {
      const TransferWatch watch(&counted);
      EXPECT_EQ(*exchange.gather_text(texts[self], "texts"), texts);
    }
    int64_t bytes = 0;
    for (const auto& [transfer, times] : counted) bytes += transfer.bytes * times;
    EXPECT_LE(bytes, 1100);
  }
}

// Likewise numbers, of which all know how many each rank says: one collective.
RANK_TEST(FieldExchange, WordsOfAllRanks, 4) {
  SampleStore store(*make_graph(default_options("grpo")));
  FieldExchange exchange(*world.everyone(), store);
  const auto self = static_cast<size_t>(world.global_rank());
  const std::vector<std::vector<std::vector<int32_t>>> cases = {
      {{}, {}, {}, {}},
      {{-1}, {2, 0}, {}, {INT32_MAX, INT32_MIN}},
      {{0}, {0}, std::vector<int32_t>(200, -3), {0}}};
  for (const std::vector<std::vector<int32_t>>& words : cases) {
    std::vector<int64_t> sizes;
    for (const std::vector<int32_t>& of_rank : words) sizes.push_back(std::ssize(of_rank));
    TransferCounts counted;
    {
      const TransferWatch watch(&counted);
      EXPECT_EQ(*exchange.gather_words(words[self], sizes, "words"), words);
    }
    int64_t calls = 0, bytes = 0;
    for (const auto& [transfer, times] : counted) calls += times, bytes += transfer.bytes * times;
    EXPECT_EQ(calls, sizes[0] == 0 ? 0 : 1);
    EXPECT_LE(bytes, 820);
  }
}

// Of two fields one message: tokens and log-probs of the rows that the other rank wrote.
RANK_TEST(FieldExchange, SendsTheFieldsOfAnExchangeTogether, 2) {
  const Graph graph = *make_graph(default_options("grpo"));
  SampleStore store(graph);
  store.begin(std::vector<StoredSample>(4));
  const std::vector<int64_t> lens = {3, 0, 5, 2};
  const auto self = static_cast<size_t>(world.global_rank());
  const Rows mine = {2 * self, 2 * self + 1}, others = {2 - 2 * self, 3 - 2 * self};
  const std::vector<Field> fields = {field_named(graph, "response_ids"),
                                     field_named(graph, "sampler_logprobs")};
  TokenLists tokens;
  for (const size_t row : mine) tokens.emplace_back(lens[row], 10 + static_cast<int32_t>(row));
  ASSERT_TRUE(store.put_tokens("response_ids", mine, tokens).ok());
  store.set_counts("response_lens", lens);
  const int64_t own = lens[mine[0]] + lens[mine[1]], came = lens[others[0]] + lens[others[1]];
  ASSERT_TRUE(store.put_reals("sampler_logprobs", mine, at::full({own}, 0.25 + self)).ok());
  FieldExchange exchange(*world.everyone(), store);
  for (const Field& field : fields)
    exchange.holdings().note(field.name, {{0, 1}, {2, 3}}, lens.size());
  const SampleRows all = {0, 1, 2, 3};
  TransferCounts counted;
  {
    const TransferWatch watch(&counted);
    exchange.start(0, fields, exchange.moves(fields, {all, all}, {}));
  }
  ASSERT_EQ(exchange.arrive(0).message(), "");
  ASSERT_EQ(exchange.end_step().message(), "");
  const auto peer = static_cast<int64_t>(1 - self);
  const TransferCounts expected = {
      {{Transfer::kSend, "everyone", peer, kFieldChannel, 8 * own}, 1},
      {{Transfer::kReceive, "everyone", peer, kFieldChannel, 8 * came}, 1}};
  EXPECT_EQ(transfer_differences(expected, counted), "");
  for (const size_t row : others)
    EXPECT_EQ((**store.tokens("response_ids"))[row],
              std::vector<int32_t>(lens[row], 10 + static_cast<int32_t>(row)));
  const at::Tensor arrived = *store.reals("sampler_logprobs", others);
  EXPECT_TRUE(arrived.equal(at::full({came}, 1.25 - self)));
}

// What both ranks have says the one that says less so far.
RANK_TEST(FieldExchange, SharesCountsAndFlagsInOneGather, 2) {
  const Graph graph = *make_graph(default_options("grpo"));
  SampleStore store(graph);
  store.begin(std::vector<StoredSample>(5));
  const auto self = static_cast<size_t>(world.global_rank());
  const std::vector<std::vector<int64_t>> lens = {{3, 0, 5, 0, 2}, {0, 1, 5, 4, 2}};  // [rank]
  store.set_counts("response_lens", lens[self]);
  const std::vector<SampleRows> written = {{0, 2, 4}, {1, 2, 3, 4}};
  const Rows mine(written[self].begin(), written[self].end());
  at::Tensor cut = at::zeros({static_cast<int64_t>(mine.size())});
  cut[0] = 1;  // of rows 0 and 1
  ASSERT_TRUE(store.put_reals("truncated", mine, cut).ok());
  FieldExchange exchange(*world.everyone(), store);
  const std::vector<Field> fields = {field_named(graph, "truncated"),
                                     field_named(graph, "response_lens")};
  for (const Field& field : fields) exchange.holdings().note(field.name, written, lens[0].size());
  TransferCounts counted;
  {
    const TransferWatch watch(&counted);
    EXPECT_TRUE(exchange.share(fields).ok());
  }
  const int64_t bytes = 2 * 2 * 3 * 4;  // ranks, fields, rows
  const TransferCounts expected = {{{Transfer::kAllGather, "everyone", -1, -1, bytes}, 1}};
  EXPECT_EQ(transfer_differences(expected, counted), "");
  EXPECT_THAT(store.counts("response_lens"), ElementsAre(3, 1, 5, 4, 2));
  EXPECT_TRUE(store.reals("truncated", store.all_rows())
                  ->equal(at::tensor({1., 1., 0., 0., 0.}, at::kFloat)));
  EXPECT_THAT(exchange.moves(fields, {{0, 1}, {0, 1}}, {}), ElementsAre());  // all have all
}

// What one rank alone has is no room for so much of every rank; a rank that has failed says so.
RANK_TEST(FieldExchange, SharesRewardsOfFewRanksInASum, 4) {
  const Graph graph = *make_graph(default_options("grpo"));
  const auto self = static_cast<int32_t>(world.global_rank());
  for (const bool fails : {false, true}) {
    SampleStore store(graph);
    store.begin(std::vector<StoredSample>(6));
    FieldExchange exchange(*world.everyone(), store);
    const std::vector<Field> fields = {field_named(graph, "rewards"), field_named(graph, "kept")};
    const std::vector<SampleRows> written = {{}, {0, 1, 2, 4, 5}, {3}, {}};
    for (const Field& field : fields) exchange.holdings().note(field.name, written, store.size());
    const Rows mine(written[self].begin(), written[self].end());
    const SaidBeside beside{{self, 7}, !(fails && self == 1)};
    if (beside.has_values) {
      const at::Tensor rewards = at::full({std::ssize(mine)}, self == 1 ? -0.0 : NAN, at::kFloat);
      ASSERT_TRUE(store.put_reals("rewards", mine, rewards).ok());
      std::vector<int64_t> kept(store.size(), 0);
      for (const size_t row : mine) kept[row] = row % 2;
      store.set_counts("kept", kept);
    }
    TransferCounts counted;
    const TransferCounts listed = exchange.listed_share(fields, std::ssize(beside.words));
    {
      const TransferWatch watch(&counted);
      EXPECT_THAT(
          *exchange.share(fields, beside),
          ElementsAre(ElementsAre(0, 7), ElementsAre(1, 7), ElementsAre(2, 7), ElementsAre(3, 7)));
    }
    const int64_t bytes = 4 * (4 * 2 + 2 * 6);  // words beside, and fields of rows
    const TransferCounts expected = {{{Transfer::kAllReduce, "everyone", -1, -1, bytes}, 1}};
    EXPECT_EQ(transfer_differences(expected, counted), "");
    EXPECT_EQ(listed, expected);
    if (fails) continue;
    EXPECT_THAT(store.counts("kept"), ElementsAre(0, 1, 0, 1, 0, 1));
    const at::Tensor all = *store.reals("rewards", store.all_rows());
    for (int64_t row = 0; row < 6; ++row) {
      const float reward = all[row].item<float>();
      EXPECT_TRUE(row == 3 ? std::isnan(reward) : reward == 0 && std::signbit(reward)) << row;
    }
  }
}

// Numbers of rows on ranks that have them.
RANK_TEST(FieldExchange, BringsNumbersOfRowsTogether, 3) {
  SampleStore store(*make_graph(default_options("grpo")));
  store.begin(std::vector<StoredSample>(5));
  FieldExchange exchange(*world.everyone(), store);
  const auto self = static_cast<size_t>(world.global_rank());
  const std::vector<Rows> said = {{1, 4}, {}, {0, 2}};
  std::map<size_t, double> mine;
  for (const size_t row : said[self]) mine[row] = 0.5 + static_cast<double>(row);
  TransferCounts counted;
  {
    const TransferWatch watch(&counted);
    EXPECT_THAT(*exchange.gather_numbers(said, mine, "scores"),
                ElementsAre(Pair(0, 0.5), Pair(1, 1.5), Pair(2, 2.5), Pair(4, 4.5)));
  }
  EXPECT_EQ(transfer_differences(exchange.listed_numbers(said), counted), "");
}

}  // namespace
}  // namespace braid::inline samples

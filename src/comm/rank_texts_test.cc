#include "comm/rank_texts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/tree_place.h"
#include "comm/rank_testing.h"

namespace braid::inline comm {
namespace {

// Of seven ranks some have branches below them, and the first does not hear all itself.
RANK_TEST(RankTexts, AreHeardInTheOrderOfTheRanks, 7) {
  Communicator* const all = *world.everyone();
  std::string own;
  const MergedText texts = {[&] { return own; },
                            [&](const std::string& text) {
                              own += text;
                              return ok_status();
                            }};
  for (int again = 0; again < 2; ++again) {
    own = std::string(static_cast<size_t>(world.global_rank()), 'x') + ";";
    ASSERT_EQ(merge_to_first(all, texts, "letters").message(), "");
    EXPECT_EQ(own == ";x;xx;xxx;xxxx;xxxxx;xxxxxx;", world.global_rank() == 0);
  }
}

// A rank sends one text of the size of one rank's, and hears at most as many as it has branches.
RANK_TEST(RankTexts, WhatARankSaysDoesNotGrowWithTheRanks, 7) {
  Communicator* const all = *world.everyone();
  all->reset_traffic();
  int64_t sum = world.global_rank();
  const auto text_of = [](int64_t number) {
    std::string out(8, '\0');
    std::memcpy(out.data(), &number, sizeof number);
    return out;
  };
  const MergedText texts = {[&] { return text_of(sum); },
                            [&](const std::string& text) {
                              int64_t heard = 0;
                              std::memcpy(&heard, text.data(), sizeof heard);
                              sum += heard;
                              return ok_status();
                            }};
  ASSERT_EQ(merge_to_first(all, texts, "sums").message(), "");
  const bool first = world.global_rank() == 0;
  EXPECT_EQ(sum == 21, first);
  EXPECT_EQ(all->traffic(Transfer::kSend).given, first ? 0 : 16);
  EXPECT_LE(all->traffic(Transfer::kReceive).received, 16 * kTreeFanOut);
  for (const Transfer transfer :
       {Transfer::kAllReduce, Transfer::kAllGather, Transfer::kBroadcast, Transfer::kAllToAll})
    EXPECT_EQ(all->traffic(transfer).calls, 0);
}

TEST(RankTexts, AreOfOneRankAloneWithoutAGroup) {
  EXPECT_EQ(merge_to_first(nullptr, {}, "nothing").message(), "");
}

}  // namespace
}  // namespace braid::inline comm

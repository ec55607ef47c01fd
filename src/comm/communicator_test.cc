#include "comm/communicator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <numeric>
#include <thread>

#include "comm/rank_testing.h"

namespace braid::inline comm {
namespace {

using testing::HasSubstr;

// A value that tells rank and element.
at::Tensor numbered(int64_t rank, int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kFloat) + static_cast<double>(100 * rank)).to(type);
}

void expect_values(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::equal(actual, expected)) << actual << "\nexpected\n" << expected;
}

void collectives_of(World& world, at::ScalarType type) {
  Communicator& all = **world.everyone();
  const int64_t n = world.world_size(), me = world.global_rank();
  at::Tensor sum = numbered(me, 6, type);
  ASSERT_EQ(all.all_reduce(sum, Reduce::kSum, "sum").wait().message(), "");
  expect_values(sum, (at::arange(6, at::kFloat) * n + 100.0 * n * (n - 1) / 2).to(type));

  at::Tensor largest = numbered(me, 3, type);
  ASSERT_EQ(all.all_reduce(largest, Reduce::kMax, "largest").wait().message(), "");
  expect_values(largest, numbered(n - 1, 3, type));

  at::Tensor part = at::empty({2}, type);
  const at::Tensor whole = numbered(me, 2 * n, type);
  ASSERT_EQ(all.reduce_scatter(part, whole, "part").wait().message(), "");
  const at::Tensor all_sum = (at::arange(2 * n, at::kFloat) * n + 100.0 * n * (n - 1) / 2).to(type);
  expect_values(part, all_sum.narrow(0, 2 * me, 2));

  at::Tensor gathered = at::empty({n, 3}, type);
  ASSERT_EQ(all.all_gather(gathered, numbered(me, 3, type), "gathered").wait().message(), "");
  for (int64_t rank = 0; rank < n; ++rank) expect_values(gathered[rank], numbered(rank, 3, type));

  at::Tensor told = numbered(me, 4, type);
  ASSERT_EQ(all.broadcast(told, 1, "told").wait().message(), "");
  expect_values(told, numbered(1, 4, type));
}

RANK_TEST(Communicator, Collectives2, 2) {
  collectives_of(world, at::kFloat);
  collectives_of(world, at::kLong);
}

RANK_TEST(Communicator, Collectives4, 4) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong})
    collectives_of(world, type);
}

RANK_TEST(Communicator, WatchesCountWhatBegins, 2) {
  Communicator& all = **world.everyone();
  const int64_t me = world.global_rank(), other = 1 - me;
  TransferCounts outer, inner;
  const at::Tensor two = at::zeros({2}), four = at::zeros({4});
  {
    const TransferWatch watch(&outer);
    ASSERT_TRUE(all.all_reduce(two, Reduce::kSum, "sum").wait().ok());
    {
      const TransferWatch nested(&inner);
      ASSERT_TRUE(all.all_gather(four, two, "gathered").wait().ok());
      ASSERT_TRUE(all.reduce_scatter(two, four, "part").wait().ok());
      all.leave_out(1);
      ASSERT_TRUE(all.all_reduce(two, Reduce::kSum, "left out").wait().ok());
    }
    Pending sent = all.send(four, other, 3, "message");
    ASSERT_TRUE(all.receive(at::zeros({4}), other, 3, "message").wait().ok());
    ASSERT_TRUE(sent.wait().ok());
    ASSERT_TRUE(all.all_reduce(two, Reduce::kSum, "sum").wait().ok());
  }
  ASSERT_TRUE(all.all_reduce(two, Reduce::kSum, "nobody counts").wait().ok());
  const TransferKind gather{Transfer::kAllGather, "everyone", -1, -1, 16},
      scatter{Transfer::kReduceScatter, "everyone", -1, -1, 16},
      sum{Transfer::kAllReduce, "everyone", -1, -1, 8},
      send{Transfer::kSend, "everyone", other, 3, 16},
      receive{Transfer::kReceive, "everyone", other, 3, 16};
  EXPECT_EQ(inner, (TransferCounts{{gather, 1}, {scatter, 1}}));
  EXPECT_EQ(outer, (TransferCounts{{gather, 1}, {scatter, 1}, {sum, 2}, {send, 1}, {receive, 1}}));
}

RANK_TEST(Communicator, Bfloat16, 4) {
  Communicator& all = **world.everyone();
  const auto options = at::TensorOptions().dtype(at::kBFloat16);
  at::Tensor sum = at::full({5}, static_cast<double>(world.global_rank() + 1), options);
  ASSERT_EQ(all.all_reduce(sum, Reduce::kSum, "sum").wait().message(), "");
  expect_values(sum, at::full({5}, 10.0, options));
  at::Tensor part = at::empty({1}, options);
  ASSERT_EQ(all.reduce_scatter(part, at::full({4}, 2.0, options), "part").wait().message(), "");
  expect_values(part, at::full({1}, 8.0, options));
}

RANK_TEST(Communicator, AllToAllWithUnequalRows, 4) {
  // Rank r sends i + 1 rows to member i, each holding 10 r + i.
  Communicator& all = **world.everyone();
  const int64_t n = world.world_size(), me = world.global_rank();
  std::vector<at::Tensor> rows;
  std::vector<int64_t> in_rows, out_rows(n, me + 1);
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(at::full({i + 1, 2}, static_cast<double>(10 * me + i)));
    in_rows.push_back(i + 1);
  }
  at::Tensor out = at::zeros({n * (me + 1), 2});
  ASSERT_EQ(all.all_to_all(out, at::cat(rows), out_rows, in_rows, "rows").wait().message(), "");
  for (int64_t from = 0; from < n; ++from)
    expect_values(out.narrow(0, from * (me + 1), me + 1),
                  at::full({me + 1, 2}, static_cast<double>(10 * from + me)));
}

RANK_TEST(Communicator, MessagesKeepTheOrderOfTheirChannel, 2) {
  Communicator& all = **world.everyone();
  constexpr int kMessages = 20;
  std::vector<Pending> pending;
  std::vector<at::Tensor> tensors;
  const int64_t other = 1 - world.global_rank();
  for (int i = 0; i < kMessages; ++i)
    for (const int32_t channel : {3, 7}) {
      const int64_t size = 1 + i % 4;
      if (world.global_rank() == 0) {
        tensors.push_back(at::full({size}, static_cast<double>(100 * channel + i)));
        pending.push_back(all.send(tensors.back(), other, channel, "message"));
      } else {
        tensors.push_back(at::empty({size}));
        pending.push_back(all.receive(tensors.back(), other, channel, "message"));
      }
    }
  for (Pending& each : pending) ASSERT_EQ(each.wait().message(), "");
  for (int i = 0; i < kMessages; ++i)
    for (int c = 0; c < 2; ++c)
      expect_values(tensors[2 * i + c],
                    at::full({1 + i % 4}, static_cast<double>(100 * (c == 0 ? 3 : 7) + i)));
}

RANK_TEST(Communicator, GroupsOverlapAndCountTheirBytes, 4) {
  const int64_t me = world.global_rank();
  Communicator& pair = **world.group(cat("pair", me / 2), {me / 2 * 2, me / 2 * 2 + 1});
  Communicator& cross = **world.group(cat("cross", me % 2), {me % 2, me % 2 + 2});
  at::Tensor x = at::full({3}, static_cast<double>(me)), y = x.clone();
  ASSERT_EQ(pair.all_reduce(x, Reduce::kSum, "x").wait().message(), "");
  ASSERT_EQ(cross.all_reduce(y, Reduce::kSum, "y").wait().message(), "");
  EXPECT_EQ(x[0].item<double>(), 4 * (me / 2) + 1);
  EXPECT_EQ(y[0].item<double>(), 2 * (me % 2) + 2);
  const int64_t peer = me < 2 ? me + 2 : me - 2;
  if (me < 2) {
    ASSERT_EQ(cross.send(x, peer, 0, "x").wait().message(), "");
    EXPECT_EQ(cross.sent_bytes().at(peer), 12);
  } else {
    ASSERT_EQ(cross.receive(y, peer, 0, "x").wait().message(), "");
    EXPECT_EQ(y[0].item<double>(), 4 * (peer / 2) + 1);
    EXPECT_EQ(cross.traffic(Transfer::kReceive).received, 12);
  }
  EXPECT_EQ(pair.traffic(Transfer::kAllReduce).calls, 1);
  EXPECT_EQ(pair.traffic(Transfer::kAllReduce).given, 12);
}

// What a rank gets from a collective grows with the group where what it gives does not.
RANK_TEST(Communicator, BytesAreThoseGivenAndThoseReceived, 4) {
  Communicator& all = **world.everyone();
  const auto bytes_of = [&](Transfer transfer) {
    return std::pair(all.traffic(transfer).given, all.traffic(transfer).received);
  };
  all.reset_traffic();
  const at::Tensor one = at::zeros({1}), four = at::zeros({4});
  ASSERT_EQ(all.all_gather(four, one, "x").wait().message(), "");
  ASSERT_EQ(all.reduce_scatter(one, four, "x").wait().message(), "");
  ASSERT_EQ(all.all_to_all(four, four.clone(), {1, 1, 1, 1}, {1, 1, 1, 1}, "x").wait().message(),
            "");
  ASSERT_EQ(all.broadcast(four, 2, "x").wait().message(), "");
  EXPECT_EQ(bytes_of(Transfer::kAllGather), std::pair(int64_t{4}, int64_t{16}));
  EXPECT_EQ(bytes_of(Transfer::kReduceScatter), std::pair(int64_t{16}, int64_t{4}));
  EXPECT_EQ(bytes_of(Transfer::kAllToAll), std::pair(int64_t{16}, int64_t{16}));
  const int64_t gives = world.global_rank() == 2 ? 16 : 0;
  EXPECT_EQ(bytes_of(Transfer::kBroadcast), std::pair(gives, 16 - gives));
}

RANK_TEST(Communicator, PlacesAreThoseOfTheGroupsOrder, 4) {
  const int64_t me = world.global_rank();
  const std::vector<int64_t> order = {2, 0, 3, 1}, place = {1, 3, 0, 2};
  Communicator& turned = **world.group("turned", order);
  EXPECT_EQ(turned.members(), order);
  EXPECT_EQ(turned.index(), place[me]);
  const at::Tensor mine = at::full({1}, static_cast<double>(me)), all = at::empty({4});
  ASSERT_EQ(turned.all_gather(all, mine, "x").wait().message(), "");
  expect_values(all, at::tensor({2.0, 0.0, 3.0, 1.0}, at::kFloat));
  const at::Tensor part = at::empty({1}), terms = at::tensor({10.0, 20.0, 30.0, 40.0}, at::kFloat);
  ASSERT_EQ(turned.reduce_scatter(part, terms, "x").wait().message(), "");
  EXPECT_EQ(part.item<double>(), 40.0 * static_cast<double>(place[me] + 1));
  const at::Tensor told = mine.clone();
  ASSERT_EQ(turned.broadcast(told, 3, "x").wait().message(), "");
  EXPECT_EQ(told.item<double>(), 3);
}

RANK_TEST(Communicator, AgreementNamesTheRankThatDiffers, 4) {
  // A point is agreed on once: the verdict stays in the store.
  const bool other = world.global_rank() >= 2;
  Claims claims = {{"runs", "x"}, {"has lr", other ? "'2'" : "'1'"}};
  if (world.global_rank() == 3) claims.erase("runs");
  const Status status = world.agree("test", claims, "mend it");
  EXPECT_EQ(status.message(),
            "rank 2, 3 has lr '2', rank 0 '1'; rank 3 runs not at all, rank 0 x: mend it");
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_TRUE(world.refused());
}

RANK_TEST(Communicator, EqualValuesAgree, 2) {
  const auto hash = binary_hash();
  ASSERT_TRUE(hash.ok());
  EXPECT_EQ(world.agree("one", {{"runs", *hash}, {"has", "a"}}, "").message(), "");
  EXPECT_EQ(world.agree("two", {}, "").message(), "");
  EXPECT_FALSE(world.refused());
}

RANK_TEST(Communicator, WhatOneRankSettlesHoldsForAll, 4) {
  const std::string own = cat("of rank ", world.global_rank());
  const auto first = world.settle("list", "who", own);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(world.settle("list", own, own).ok());
  EXPECT_EQ(**world.settled("list", "who"), *first);
  EXPECT_EQ(*world.settled("list", "nobody"), std::nullopt);
  EXPECT_EQ(*world.told_by_first("own", own), "of rank 0");
  EXPECT_EQ(*world.told_by_first("settled", *first), *first);
  ASSERT_TRUE((*world.everyone())->barrier("all have settled").ok());
  std::map<std::string, std::string> all = {{"who", *first}};
  for (int rank = 0; rank < 4; ++rank) all[cat("of rank ", rank)] = cat("of rank ", rank);
  const auto listed = world.settled_behind("list", 0), rest = world.settled_behind("list", 3);
  EXPECT_EQ((std::map<std::string, std::string>(listed->begin(), listed->end())), all);
  EXPECT_TRUE(std::equal(rest->begin(), rest->end(), listed->begin() + 3, listed->end()));
  EXPECT_EQ(rest->size(), 2u);
  EXPECT_TRUE(world.settled_behind("list", 5)->empty());
  EXPECT_TRUE(world.settled_behind("another", 0)->empty());
  // The store goes with rank 0.
  ASSERT_TRUE((*world.everyone())->barrier("all have read").ok());
}

// Ranks 0 and 2 have one part, 1 and 3 another; rank 3 also knows something of the first.
RANK_TEST(Communicator, RanksAgreeOnPartsThatTheyShare, 4) {
  const int64_t rank = world.global_rank();
  const auto agree = [&](const std::string& value, const std::string& overlap) {
    PartClaims own{cat("of ", rank % 2), rank < 2, {{cat("has ", rank % 2), value}}, {}};
    if (rank == 3) {
      own.claims["has 0"] = overlap;
      own.first = true;
      own.part = "of 3";
      own.overlapping = {"of 0"};
    }
    return world.agree_on_parts("parts", {own}, "mend it").message();
  };
  EXPECT_EQ(agree("a", "a"), "");
  EXPECT_EQ(agree(cat("a", rank % 2), "a0"), "") << "rank 3 has what rank 1 has not";
  EXPECT_EQ(agree(cat("a", rank), "a0"), "rank 2 has 0 a2, rank 0 a0: mend it");
  EXPECT_EQ(agree("a", "b"), "rank 3 has 0 b, rank 0 a: mend it");
  EXPECT_TRUE(world.refused());
}

// To agree and to connect a group, of a rank that no other one keeps waiting.
void expect_few_requests(World& world) {
  int64_t before = world.store_requests();
  ASSERT_TRUE(world.agree("few requests", {{"has", "a"}}, "").ok());
  EXPECT_LE(world.store_requests() - before, 9) << "agree";
  before = world.store_requests();
  const bool first = world.global_rank() == 0;
  ASSERT_TRUE(world.agree_on_parts("few requests", {{"part", first, {{"has", "a"}}, {}}}, "").ok());
  EXPECT_LE(world.store_requests() - before, 9) << "agree on parts";
  before = world.store_requests();
  std::vector<int64_t> all = (*world.everyone())->members();
  const auto again = world.group("of few requests", std::move(all));
  ASSERT_TRUE(again.ok());
  EXPECT_LE(world.store_requests() - before, 5) << "group";
  ASSERT_TRUE((*again)->barrier("all have met").ok());
}
RANK_TEST(Communicator, TwoRanksMeetInFewRequests, 2) { expect_few_requests(world); }
RANK_TEST(Communicator, EightRanksMeetInAsFewRequests, 8) { expect_few_requests(world); }

// Ranks on threads of one process, whose groups of all are over wires.
TEST(Communicator, TwelveRanksMeetOverWiresInAsFewRequests) {
  constexpr int64_t kRanks = 12;
  const auto store = Store::serve_local("few");
  ASSERT_TRUE(store.ok());
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&store, rank] {
      Membership self;
      self.global_rank = rank, self.world_size = self.local_size = kRanks;
      self.master_port = (*store)->port(), self.store_exists = true, self.attempt = "few";
      const auto world = World::join(self, {.join_s = 60, .notice_s = 60, .deadline_s = 60});
      ASSERT_TRUE(world.ok()) << world.status().message();
      ASSERT_TRUE((*(*world)->everyone())->barrier("all have come").ok());
      EXPECT_GT((*world)->wired_to(), 0);
      expect_few_requests(**world);
      EXPECT_EQ((*world)->leave().message(), "");
    });
  for (std::thread& thread : threads) thread.join();
}

// Rank 0 of so many serves the store, and all but `stays` leave: its requests in that, and what it
// says.
std::pair<int64_t, std::string> first_leaves(int64_t ranks, int64_t stays) {
  const int64_t port = (*Store::serve_local("free"))->port();
  std::pair<int64_t, std::string> out;
  std::latch ended(1);
  const auto run = [&](int64_t rank) {
    Membership self;
    self.global_rank = rank, self.world_size = self.local_size = ranks;
    self.master_port = port, self.attempt = "leaving";
    const auto world = World::join(self, {.join_s = 60, .leave_s = stays < 0 ? 60.0 : 0.5});
    ASSERT_TRUE(world.ok()) << world.status().message();
    const int64_t before = (*world)->store_requests();
    if (rank == stays) return ended.wait();
    const std::string said = (*world)->leave().message();
    if (rank > 0) {
      EXPECT_EQ(said, "");
    } else {
      out = {(*world)->store_requests() - before, said};
      ended.count_down();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return out;
}

TEST(Communicator, WhoServesTheStoreWaitsForAllWithOneRequest) {
  const auto few = first_leaves(2, -1), many = first_leaves(12, -1);
  EXPECT_EQ(few.second, "");
  EXPECT_EQ(many.second, "");
  EXPECT_EQ(few.first, 2);  // a wait, and the value
  EXPECT_EQ(many.first, few.first);
  EXPECT_EQ(first_leaves(3, 2).second, "rank 2 has not left within 500.00 ms");
}

// Ranks that wait for others for long: one of them asks who is missing, and says it.
TEST(Communicator, OfManyThatWaitOneAsksForWhom) {
  constexpr int64_t kRanks = 12, kAbsent = 2;
  constexpr int kNotices = 2;  // at 0.5 s and at 2 s
  const auto store = Store::serve_local("late");
  ASSERT_TRUE(store.ok());
  std::atomic<int> asked_for_all = 0;
  std::latch given_up(kRanks - kAbsent);
  const auto run = [&](int64_t rank) {
    Membership self;
    self.global_rank = rank, self.world_size = self.local_size = kRanks;
    self.master_port = (*store)->port(), self.store_exists = true, self.attempt = "late";
    const auto world = World::join(self, {.join_s = 4, .notice_s = 0.5, .mesh_ranks = 64});
    EXPECT_TRUE(world.ok()) << world.status().message();
    if (world.ok() && rank < kRanks - kAbsent) {
      std::vector<int64_t> all(kRanks);
      std::iota(all.begin(), all.end(), 0);
      const int64_t before = (*world)->store_requests();
      const auto group = (*world)->group("late", std::move(all));
      if ((*world)->store_requests() - before > 3 * kRanks) ++asked_for_all;
      EXPECT_THAT(group.status().message(), HasSubstr("rank 10, 11 of 12 did not come"));
    }
    if (rank < kRanks - kAbsent) given_up.count_down();
    given_up.wait();
    if (world.ok()) {
      EXPECT_EQ((*world)->leave().message(), "");
    }
  };
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < kRanks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LE(asked_for_all, kNotices + 1) << log;  // and one at the end
  int said = 0;
  for (const std::string& line : split(log, '\n'))
    said += line.find("group late: rank 10, 11 of 12 did not come") != std::string::npos;
  EXPECT_GE(said, 1) << log;
  EXPECT_LE(said, kNotices) << log;
}

TEST(Communicator, OneRankNeedsNobody) {
  auto world = World::join({}, {});
  ASSERT_TRUE(world.ok());
  Communicator& all = **(*world)->everyone();
  at::Tensor x = numbered(0, 3), y = at::empty({3});
  EXPECT_TRUE(all.all_reduce(x, Reduce::kSum, "x").wait().ok());
  EXPECT_TRUE(all.all_gather(y, x, "y").wait().ok());
  expect_values(y, numbered(0, 3));
  EXPECT_TRUE(all.barrier("end").ok());
  EXPECT_EQ(all.traffic(Transfer::kAllReduce).calls, 0);
}

}  // namespace
}  // namespace braid::inline comm

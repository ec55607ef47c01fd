#include "comm/wired_backend.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/text.h"
#include "comm/beat.h"
#include "comm/message_thread.h"
#include "comm/wired_testing.h"

namespace braid::inline comm {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(TreePlace, EveryPlaceHasOneParentAndFewBranches) {
  for (int size = 1; size <= 300; ++size) {
    std::vector<int> depth(size, 0), parents(size, 0);
    for (int place = 0; place < size; ++place) {
      const TreePlace tree = tree_place(place, size);
      ASSERT_LE(tree.branches.size(), static_cast<size_t>(kTreeFanOut));
      ASSERT_EQ(tree.parent < 0, place == 0);
      int next = place + 1;
      for (const auto& branch : tree.branches) {
        ASSERT_EQ(branch.place, next) << size << " " << place;
        ASSERT_EQ(tree_place(branch.place, size).parent, place);
        ASSERT_EQ(tree_place(branch.place, size).end, branch.end);
        ++parents[branch.place], depth[branch.place] = depth[place] + 1;
        next = branch.end;
      }
      ASSERT_EQ(next, tree.end);
      ASSERT_EQ(parents[place], place == 0 ? 0 : 1);
      ASSERT_LE(depth[place], 5);
    }
  }
}

void expect_equal_on_all(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, results.front()));
}

// Rows of no width: as many as a large batch has tokens, and no memory.
TEST(WiredBackend, RowsThatAreExchangedMayBeBillions) {
  constexpr int64_t kMany = (int64_t{1} << 32) - 1;
  WiredRanks ranks(3);
  ranks.run([&](Communicator& all, int64_t rank) {
    const std::vector<int64_t> rows = {kMany, 2, 2};
    const at::Tensor in = at::zeros({kMany + 4, 0}), out = at::zeros({kMany + 4, 0});
    EXPECT_EQ(all.all_to_all(out, in, rows, rows, cat("of ", rank)).wait().message(), "");
  });
}

void check_sums(WiredRanks& ranks, int64_t count) {
  std::vector<at::Tensor> sums(ranks.size()), again(ranks.size()), parts(ranks.size());
  const int64_t piece = count / ranks.size();
  ranks.run([&](Communicator& all, int64_t rank) {
    for (at::Tensor* sum : {&sums[rank], &again[rank]}) {
      *sum = uneven(rank, count);
      EXPECT_EQ(all.all_reduce(*sum, Reduce::kSum, "sum").wait().message(), "");
    }
    const at::Tensor largest = at::full({3}, rank, at::kLong);
    EXPECT_EQ(all.all_reduce(largest, Reduce::kMax, "largest").wait().message(), "");
    EXPECT_TRUE(at::equal(largest, at::full({3}, ranks.size() - 1, at::kLong)));
    parts[rank] = at::zeros({piece});
    EXPECT_EQ(all.reduce_scatter(parts[rank], uneven(rank, piece * ranks.size()), "part")
                  .wait()
                  .message(),
              "");
  });
  expect_equal_on_all(sums);
  expect_equal_on_all(again);
  EXPECT_TRUE(at::equal(sums.front(), again.front()));
  at::Tensor exact = at::zeros({count}, at::kDouble);
  for (int64_t rank = 0; rank < ranks.size(); ++rank) exact += uneven(rank, count).to(at::kDouble);
  EXPECT_TRUE(at::allclose(sums.front().to(at::kDouble), exact, 1e-5));
  for (int64_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_TRUE(
        at::allclose(parts[rank].to(at::kDouble), exact.narrow(0, rank * piece, piece), 1e-5));
}

TEST(WiredBackend, SumsAreTheSameBitsOnAllRanks) {
  WiredRanks ranks(33);
  check_sums(ranks, 330);
  EXPECT_LE(ranks.most_peers(), kTreeFanOut + 1 + 2);  // the tree's, and two in the ring
  check_sums(ranks, 66000);
  EXPECT_LE(ranks.most_peers(), kTreeFanOut + 1 + 2);
}

TEST(WiredBackend, SumsOfBfloat16) {
  WiredRanks ranks(10);
  ranks.run([](Communicator& all, int64_t rank) {
    const auto options = at::TensorOptions().dtype(at::kBFloat16);
    const at::Tensor sum = at::full({5}, static_cast<double>(rank + 1), options);
    EXPECT_EQ(all.all_reduce(sum, Reduce::kSum, "sum").wait().message(), "");
    EXPECT_TRUE(at::equal(sum, at::full({5}, 55.0, options)));
    const at::Tensor least = at::full({5}, static_cast<double>(rank - 4), options);
    EXPECT_EQ(all.all_reduce(least, Reduce::kMin, "least").wait().message(), "");
    EXPECT_TRUE(at::equal(least, at::full({5}, -4.0, options)));
  });
}

// The store is asked where a rank listens by who connects to it, and by nobody else.
TEST(WiredBackend, ARankLearnsTheAddressesOfItsNeighboursAlone) {
  WiredRanks ranks(33);
  const int64_t before = ranks.store().requests();
  for (int i = 0; i < 3; ++i)
    ranks.run([](Communicator& all, int64_t) { EXPECT_TRUE(all.barrier("here").ok()); });
  int64_t connected = 0;
  for (int64_t rank = 0; rank < ranks.size(); ++rank) connected += ranks.wires(rank).peers();
  EXPECT_GE(connected, 2 * (ranks.size() - 1));  // each is seen from both sides
  EXPECT_GE(ranks.store().requests() - before, ranks.size() - 1);
  EXPECT_LE(ranks.store().requests() - before, connected);
}

TEST(WiredBackend, WhatIsTakenTogetherTravelsAlongTheTree) {
  WiredRanks ranks(33);
  for (const int64_t count : {1, 3000}) {
    ranks.run([&](Communicator& all, int64_t rank) {
      const at::Tensor gathered = at::zeros({ranks.size(), count});
      const at::Tensor own = uneven(rank, count);
      EXPECT_EQ(all.all_gather(gathered, own, "gathered").wait().message(), "");
      for (int64_t from = 0; from < ranks.size(); ++from)
        EXPECT_TRUE(at::equal(gathered[from], uneven(from, count)));
      EXPECT_EQ(all.barrier("here").message(), "");
      for (const int64_t root : {0, 1, 20, 32}) {
        const at::Tensor told = rank == root ? uneven(root, 100 * count) : at::zeros({100 * count});
        EXPECT_EQ(all.broadcast(told, root, "told").wait().message(), "");
        EXPECT_TRUE(at::equal(told, uneven(root, 100 * count)));
      }
    });
    EXPECT_LE(ranks.most_peers(), kTreeFanOut + 1);
  }
  ranks.run([&](Communicator& all, int64_t rank) {
    const at::Tensor gathered = at::zeros({ranks.size(), 50000});  // around the ring
    EXPECT_EQ(all.all_gather(gathered, uneven(rank, 50000), "gathered").wait().message(), "");
    for (int64_t from = 0; from < ranks.size(); ++from)
      EXPECT_TRUE(at::equal(gathered[from], uneven(from, 50000)));
  });
  EXPECT_LE(ranks.most_peers(), kTreeFanOut + 1 + 2);
}

TEST(WiredBackend, AllToAllWithUnequalRows) {
  // Rank r sends i rows to member i, each holding 10 r + i: member 0 gets none.
  WiredRanks ranks(10);
  ranks.run([&](Communicator& all, int64_t rank) {
    const int64_t n = ranks.size();
    std::vector<at::Tensor> rows;
    std::vector<int64_t> in_rows, out_rows(n, rank);
    for (int64_t i = 0; i < n; ++i) {
      rows.push_back(at::full({i, 2}, static_cast<double>(10 * rank + i)));
      in_rows.push_back(i);
    }
    const at::Tensor out = at::zeros({n * rank, 2});
    EXPECT_EQ(all.all_to_all(out, at::cat(rows), out_rows, in_rows, "rows").wait().message(), "");
    for (int64_t from = 0; from < n; ++from)
      EXPECT_TRUE(at::equal(out.narrow(0, from * rank, rank),
                            at::full({rank, 2}, static_cast<double>(10 * from + rank))));
  });
}

TEST(WiredBackend, MessagesOfAChannelKeepTheirOrder) {
  WiredRanks ranks(9);
  ranks.run([&](Communicator& all, int64_t rank) {
    const int64_t next = (rank + 1) % ranks.size(), before = (rank + 8) % ranks.size();
    const std::vector<int64_t> sizes = {1, 200000, 3, 70000, 2};
    std::vector<at::Tensor> come;
    std::vector<Pending> pending;
    for (const int64_t size : sizes) {
      pending.push_back(all.send(uneven(rank, size), next, 4, "number"));
      pending.push_back(all.send(uneven(rank + 50, size), next, 5, "other number"));
    }
    for (const int32_t channel : {5, 4})
      for (const int64_t size : sizes) {
        come.push_back(at::zeros({size}));
        pending.push_back(all.receive(come.back(), before, channel, "number"));
      }
    for (Pending& each : pending) EXPECT_EQ(each.wait().message(), "");
    for (size_t i = 0; i < come.size(); ++i)
      EXPECT_TRUE(at::equal(come[i],
                            uneven(before + (i < sizes.size() ? 50 : 0), sizes[i % sizes.size()])));
  });
  EXPECT_EQ(ranks.most_peers(), 2);
}

// A thread that waits for a message which nobody sends: its owner waits no longer than for any
// other, and it ends with its owner.
TEST(WiredBackend, AThreadThatPassesMessagesOnEndsWithoutThem) {
  WiredRanks ranks(9, 1);
  ranks.run([](Communicator& all, int64_t rank) {
    if (rank != 0) return;
    Pending never = all.receive(at::zeros({3}), 1, 4, "number");
    Status ended;
    {
      MessageThread thread([&](MessageThread& self) { return ended = self.wait(never); });
      const Status late = thread.finish();
      EXPECT_EQ(late.code(), Code::kDeadline);
      EXPECT_THAT(late.message(), HasSubstr("receive of number with rank 1"));
      EXPECT_THAT(late.message(), HasSubstr("not done within 1 s"));
    }
    EXPECT_EQ(ended.code(), Code::kUnavailable);
  });
}

TEST(WiredBackend, OtherSizesThanExpectedAreAnError) {
  WiredRanks ranks(9);
  ranks.run([&](Communicator& all, int64_t rank) {
    for (const int64_t size : {2, 60000}) {
      if (rank == 3) {
        Pending sent = all.send(at::zeros({size}), 4, 1, "number");
        if (size > 2) return;  // its receiver has no room
        EXPECT_EQ(sent.wait().message(), "");
      } else if (rank == 4) {
        EXPECT_THAT(all.receive(at::zeros({size + 1}), 3, 1, "number").wait().message(),
                    HasSubstr(cat("rank 3 sent ", 4 * size, " bytes, expected ", 4 * size + 4)));
      }
    }
  });
}

TEST(WiredBackend, AMissingRankIsNamed) {
  WiredRanks ranks(33, 1);
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    Beat beat{1, 1, RankWait{{20}, 1}, "step 3, waits"};
    if (rank == 20) beat.waits.reset(), beat.position = "step 3, reward";
    ASSERT_TRUE(ranks.store().set(beat_key(rank), beat_text(beat)).ok());
  }
  ranks.run([&](Communicator& all, int64_t rank) {
    if (rank == 20) return;
    const Status status =
        all.all_gather(at::zeros({ranks.size()}), at::zeros({1}), "numbers").wait();
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("all_gather of numbers"), HasSubstr("not done within 1 s"),
                      HasSubstr("; rank 20: step 3, reward"), Not(HasSubstr("step 3, waits"))));
  });
}

// As where a process ends, which the others see one after another.
TEST(WiredBackend, ARankThatIsGoneIsNamedByItsNeighbours) {
  WiredRanks ranks(33);
  ranks.run([](Communicator& all, int64_t) { EXPECT_TRUE(all.barrier("connected").ok()); });
  const int64_t parent = tree_place(20, 33).parent;
  std::string said;
  ranks.run([&](Communicator& all, int64_t rank) {
    if (rank != 20) {
      const Status status = all.barrier("after it");
      EXPECT_EQ(status.code(), Code::kUnavailable);
      if (rank == parent) said = status.message();
    }
    ranks.wires(rank).close();
  });
  EXPECT_THAT(said, HasSubstr("rank 20 "));
}

// Two that begin at the same moment keep a connection each, and the ends of both are seen one after
// the other.
TEST(WiredBackend, WhatARankSentBeforeItEndedComes) {
  for (int trial = 0; trial < 100; ++trial) {
    WiredRanks ranks(2);
    Wires &ends = ranks.wires(0), &stays = ranks.wires(1);
    const auto deadline = deadline_in(60);
    const WireHandle sent = ends.send({1, 7, 1}, at::full({1000}, 3.0));
    const WireHandle back = stays.send({0, 7, 1}, at::full({1000}, 4.0));
    ASSERT_TRUE(ends.wait(sent, deadline).ok());
    ASSERT_TRUE(stays.wait(back, deadline).ok());
    ends.close();
    const at::Tensor room = at::zeros({1000});
    const Status come = stays.wait(stays.receive({0, 7, 1}, room), deadline);
    ASSERT_EQ(come.message(), "") << "trial " << trial;
    EXPECT_EQ(room.sum().item<float>(), 3000);
  }
}

// What nobody waits for any more holds no memory, and takes nothing from who waits next.
TEST(WiredBackend, AReceiveThatWasGivenUpIsLetGo) {
  WiredRanks ranks(2);
  Wires &sends = ranks.wires(0), &takes = ranks.wires(1);
  for (const int64_t count : {3, 60000}) {
    at::Tensor first = at::zeros({count}), second = at::zeros({count});
    WireHandle aborted = takes.receive({0, 7, 1}, first), late = takes.receive({0, 7, 1}, second);
    takes.give_up(aborted);
    EXPECT_EQ(takes.wait(aborted, deadline_in(60)).code(), Code::kUnavailable);
    EXPECT_EQ(takes.wait(late, deadline_in(0.01)).code(), Code::kDeadline);
    aborted = late = nullptr;
    EXPECT_EQ(first.use_count(), 1u);
    EXPECT_EQ(second.use_count(), 1u);
    const at::Tensor sent = uneven(0, count), room = at::zeros({count});
    const WireHandle going = sends.send({1, 7, 1}, sent);
    EXPECT_EQ(takes.wait(takes.receive({0, 7, 1}, room), deadline_in(60)).message(), "");
    EXPECT_EQ(sends.wait(going, deadline_in(60)).message(), "");
    EXPECT_TRUE(at::equal(room, sent));
  }
}

// Takes all files that this process may have, but for as many as are let go.
class AllFilesTaken {
 public:
  AllFilesTaken() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    const rlimit lowered{static_cast<rlim_t>(open) + 16, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
    while (true) {
      FileHandle file(::dup(STDIN_FILENO));
      if (!file.is_open()) break;
      files_.push_back(std::move(file));
    }
  }
  ~AllFilesTaken() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  void let_one_go() { files_.pop_back(); }

 private:
  rlimit before_{};
  std::vector<FileHandle> files_;
};

double cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr const char* kFilesText = "open files: limit [0-9]+; raise `ulimit -n`";

// Rank 0 has the last file for its side of the connection.
TEST(WiredBackend, WhoHasNoFileForAConnectionWaitsForOneAndSaysSo) {
  WiredRanks ranks(2);
  const at::Tensor room = at::zeros({3});
  testing::internal::CaptureStderr();
  WireHandle come;
  {
    AllFilesTaken taken;
    taken.let_one_go();
    come = ranks.wires(1).receive({0, 7, 1}, room);
    (void)ranks.wires(0).send({1, 7, 1}, uneven(0, 3));
    const double before_s = cpu_s();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_LT(cpu_s() - before_s, 0.2);
    EXPECT_FALSE(ranks.wires(1).is_done(come));
  }
  EXPECT_EQ(ranks.wires(1).wait(come, deadline_in(60)).message(), "");
  EXPECT_TRUE(at::equal(room, uneven(0, 3)));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ContainsRegex(cat("rank 1 cannot be reached by other ranks: ", kFilesText)));
}

// Short and long messages, in their order, once there is a file again.
TEST(WiredBackend, WhoHasNoFileToReachAnotherWaitsForOneAndSaysSo) {
  WiredRanks ranks(2);
  testing::internal::CaptureStderr();
  std::vector<WireHandle> sent;
  {
    const AllFilesTaken taken;
    for (const int64_t size : {3, 60000, 5})
      sent.push_back(ranks.wires(0).send({1, 7, 1}, uneven(0, size)));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (const WireHandle& each : sent) EXPECT_FALSE(ranks.wires(0).is_done(each));
  }
  for (const int64_t size : {3, 60000, 5}) {
    const at::Tensor room = at::zeros({size});
    const WireHandle come = ranks.wires(1).receive({0, 7, 1}, room);
    EXPECT_EQ(ranks.wires(1).wait(come, deadline_in(60)).message(), "");
    EXPECT_TRUE(at::equal(room, uneven(0, size)));
  }
  for (const WireHandle& each : sent)
    EXPECT_EQ(ranks.wires(0).wait(each, deadline_in(60)).message(), "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ContainsRegex(cat("rank 0: connecting to rank 1 at 127.0.0.1:[0-9]+: ", kFilesText,
                                "; it waits 60")));
}

TEST(WiredBackend, WithoutFilesATransferEndsAndSaysWhy) {
  WiredRanks ranks(2, 60, 0.2);
  AllFilesTaken taken;
  for (const int64_t size : {3, 60000}) {
    const WireHandle refused = ranks.wires(0).send({1, 7, 1}, uneven(0, size));
    EXPECT_THAT(ranks.wires(0).wait(refused, deadline_in(60)).message(),
                ContainsRegex(cat("connecting to rank 1 at 127.0.0.1:[0-9]+: ", kFilesText)));
  }
  taken.let_one_go();
  const WireHandle come = ranks.wires(1).receive({0, 7, 1}, at::zeros({3}));
  (void)ranks.wires(0).send({1, 7, 1}, uneven(0, 3));
  const Status late = ranks.wires(1).wait(come, deadline_in(60));
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_THAT(late.message(), ContainsRegex(cat("rank 0 cannot be heard: ", kFilesText)));
}

// A table that is full as soon as all have connected who want to: nobody waits for a file.
TEST(WiredBackend, AFullTableIsNoReasonNotToWaitForWhoHasNotCome) {
  WiredRanks ranks(3, 60, 0.2);
  AllFilesTaken taken;
  taken.let_one_go(), taken.let_one_go();  // for the two sides of one connection
  const WireHandle come = ranks.wires(1).receive({0, 7, 1}, at::zeros({3}));
  (void)ranks.wires(0).send({1, 7, 1}, uneven(0, 3));
  EXPECT_EQ(ranks.wires(1).wait(come, deadline_in(60)).message(), "");
  const WireHandle later = ranks.wires(1).receive({2, 7, 1}, at::zeros({3}));
  const Status waits = ranks.wires(1).wait(later, deadline_in(1));
  EXPECT_EQ(waits.code(), Code::kDeadline) << waits.message();
}

TEST(WiredBackend, WiresThatLackAFileAreNotOpened) {
  const auto store = Store::serve_local("files");
  ASSERT_TRUE(store.ok());
  AllFilesTaken taken;
  for (int files = 0; files < 3; ++files) {  // for the listener, and the two that watch
    const Status refused = Wires::open(**store, Membership()).status();
    EXPECT_EQ(refused.code(), Code::kUnavailable);
    EXPECT_THAT(refused.message(),
                ContainsRegex(cat("cannot listen for other ranks.*", kFilesText)));
    taken.let_one_go();
  }
  EXPECT_EQ(Wires::open(**store, Membership()).status().message(), "");
}

TEST(WiredBackend, WhoIsNotOfTheJobIsNotHeard) {
  WiredRanks ranks(9);
  const auto place = ranks.store().look({"wire/0"});
  ASSERT_TRUE(place.ok() && (*place)[0]);
  const std::vector<std::string> parts = split(*(*place)[0], ' ');
  int64_t port = 0;
  ASSERT_TRUE(parse_int(parts[1], &port));
  const auto found = addresses_of(parts[0], port);
  ASSERT_TRUE(found.ok());
  const FileHandle stranger = socket_of(**found);
  ASSERT_EQ(::connect(stranger.get(), (*found)->ai_addr, (*found)->ai_addrlen), 0);
  const std::string words(4096, 'x');
  ASSERT_EQ(::send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL), 4096);
  char end = 0;
  EXPECT_LE(::recv(stranger.get(), &end, 1, 0), 0);  // it is shown the door
  ranks.run([](Communicator& all, int64_t) { EXPECT_TRUE(all.barrier("all the same").ok()); });
}

}  // namespace
}  // namespace braid::inline comm

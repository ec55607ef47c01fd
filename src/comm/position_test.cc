#include "comm/position.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "base/text.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

TEST(Position, TextNamesPhaseInstructionAndWait) {
  PositionBoard board;
  EXPECT_EQ(board.text(), "starting");
  board.enter("step 1, call generate", "instruction 2 (call)");
  board.proceed("instruction 3 (send)");
  {
    const std::vector<int64_t> peers = {3};
    const PositionBoard::Waiting waiting(board, "send of x", peers);
    EXPECT_EQ(board.waiting()->peers, peers);
    EXPECT_TRUE(board.waiting(60)->peers.empty());
    EXPECT_EQ(board.text(), "step 1, call generate, instruction 3 (send), waiting: send of x");
    const auto view = PositionView::open(::getpid());
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->text(), board.text());
  }
  EXPECT_EQ(board.text(), "step 1, call generate, instruction 3 (send)");
  EXPECT_FALSE(board.waiting().has_value());
}

// Threads of one rank wait beside each other and end in any order.
TEST(Position, WaitsOfSeveralThreadsAreTold) {
  PositionBoard board;
  const std::vector<int64_t> one = {1}, two = {2};
  auto first = std::make_unique<PositionBoard::Waiting>(board, "the first", one);
  const PositionBoard::Waiting second(board, "the second", two);
  EXPECT_EQ(board.text(), "starting, waiting: the second");
  first.reset();
  EXPECT_EQ(board.text(), "starting, waiting: the second");
  EXPECT_EQ(board.waiting()->peers, two);
}

// A transfer of a device whose end the test says.
DeviceTransfer on_device(const std::string& what, int64_t peer, std::optional<Status>* end,
                         double age_s = 0, double deadline_s = 60) {
  const auto age = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(age_s));
  return {what, std::make_shared<std::vector<int64_t>>(1, peer), deadline_s, [end] { return *end; },
          std::chrono::steady_clock::now() - age};
}

TEST(Position, TransfersOfADeviceAreWaitsUntilTheyEnd) {
  PositionBoard board;
  std::optional<Status> first, second;
  board.follow(on_device("sum of x", 3, &first, 20));
  board.follow(on_device("sum of y", 4, &second, 10));
  EXPECT_EQ(board.text(), "starting, waiting: sum of x");
  EXPECT_EQ(board.waiting()->peers, std::vector<int64_t>{3});
  EXPECT_TRUE(board.waiting(40)->peers.empty());
  EXPECT_GE(board.waiting()->seconds, 20);
  {
    const std::vector<int64_t> peers = {5};
    const PositionBoard::Waiting waiting(board, "send of z", peers);  // what the host waits for
    EXPECT_EQ(board.waiting()->peers, peers);
  }
  EXPECT_TRUE(board.settle().ok());
  EXPECT_EQ(PositionView::open(::getpid())->text(), "starting, waiting: sum of x");
  const uint64_t before = progress_count();
  first = Status();
  EXPECT_TRUE(board.settle().ok());
  EXPECT_EQ(progress_count(), before + 1);
  EXPECT_FALSE(board.waiting().has_value()) << "the second has its turn only now";
  second = Status();
  EXPECT_TRUE(board.settle().ok());
  EXPECT_EQ(board.text(), "starting");
}

TEST(Position, TransfersOfADeviceThatFailOrAreLateAreSaid) {
  std::optional<Status> end;
  PositionBoard late;
  late.follow(on_device("sum of x", 3, &end, 20, 10));
  EXPECT_EQ(late.settle().code(), Code::kDeadline);
  EXPECT_EQ(late.settle().message(), "sum of x: not done within 10 s (runtime.wait_s)");
  PositionBoard broken;
  end = Status(Code::kUnavailable, "the peer is gone");
  broken.follow(on_device("sum of y", 4, &end));
  EXPECT_EQ(broken.settle().message(), "sum of y: the peer is gone");
}

// A rank that never looks (no watchdog) keeps no more of them than are on their way.
TEST(Position, EndedTransfersOfADeviceAreForgotten) {
  std::optional<Status> end = Status();
  PositionBoard board;
  const auto alive = std::make_shared<int>(0);
  for (int i = 0; i < 1000; ++i) {
    DeviceTransfer transfer = on_device("sum of x", 3, &end);
    transfer.ended = [&end, alive] { return end; };
    board.follow(std::move(transfer));
  }
  EXPECT_EQ(alive.use_count(), 2);
  std::optional<Status> never;
  PositionBoard slow;
  slow.follow(on_device("sum of y", 3, &never));
  {
    DeviceTransfer transfer = on_device("sum of z", 3, &end);
    transfer.ended = [&end, alive] { return end; };
    slow.follow(std::move(transfer));
  }
  EXPECT_EQ(alive.use_count(), 3);
  EXPECT_TRUE(slow.settle().ok());
  EXPECT_EQ(alive.use_count(), 2) << "behind one that takes long";
}

TEST(Position, OnlyABoardCanBeViewed) {
  EXPECT_FALSE(PositionView::open(::getpid()).has_value());
  EXPECT_FALSE(PositionView::open(1 << 30).has_value());
}

// A process that changes its position without end and is killed somewhere within a change.
TEST(Position, ViewOutlivesTheProcessAndIsNeverTorn) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    PositionBoard board;
    for (int i = 0;; ++i) {
      const std::string digit(1, static_cast<char>('a' + i % 26));
      board.enter(digit, std::string(700, digit[0]));
    }
  }
  std::optional<PositionView> view;
  while (!(view = PositionView::open(child)) || view->text().size() < 700)
    std::this_thread::yield();
  const auto expect_whole = [](const std::string& text) {
    ASSERT_EQ(text.size(), 703u);
    EXPECT_EQ(text, cat(text[0], ", ", std::string(700, text[0])));
  };
  for (int i = 0; i < 1000; ++i) expect_whole(view->text());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(PositionView::open(child).has_value());
  const std::string last = view->text();
  expect_whole(last);
  EXPECT_EQ(view->text(), last);
}

TEST(Position, LongTextsAreCut) {
  PositionBoard board;
  board.enter(std::string(5000, 'x'));
  EXPECT_EQ(PositionView::open(::getpid())->text(), std::string(1023, 'x'));
  EXPECT_EQ(board.text().size(), 5000u);
}

// What each instruction of a rank costs by it, for the record.
TEST(Position, AChangeIsCheap) {
  constexpr int kChanges = 100000;
  PositionBoard board;
  timespec begin{}, end{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int i = 0; i < kChanges; ++i)
    board.enter(cat("step ", i, ", call update_actor"), cat("instruction ", i, " (schedule)"));
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const auto ns = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
                  static_cast<double>(end.tv_nsec - begin.tv_nsec);
  RecordProperty("cpu_ns_per_change", static_cast<int>(ns / kChanges));
  EXPECT_EQ(board.text(), "step 99999, call update_actor, instruction 99999 (schedule)");
}

}  // namespace
}  // namespace braid::inline comm

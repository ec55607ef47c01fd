// The rule by which transfers get ports.
#include "emulate/fabric.h"

#include <gmock/gmock.h>

#include <thread>

#include "comm/rank_testing.h"
#include "emulate/end_times.h"

namespace braid::inline emulate {
namespace {

constexpr int64_t kMs = 1000000;

std::unique_ptr<Fabric> shared_fabric(World& world) {
  auto everyone = world.everyone();
  EXPECT_TRUE(everyone.ok());
  auto fabric = Fabric::share(**everyone, {.ports = 4, .grace_ns = 0, .deadline_s = 60});
  EXPECT_TRUE(fabric.ok()) << fabric.status().message();
  (*fabric)->set_clock(EmulatedClock(EmulatedClock::machine_ns(), 1));
  return std::move(*fabric);
}

int32_t opened(Fabric& fabric, const Fabric::Transfer& transfer) {
  const auto slot = fabric.open(transfer);
  EXPECT_TRUE(slot.ok());
  return slot.ok() ? *slot : 0;
}

// A transfer that waits for a port keeps no other one busy, and begins when the last is free.
RANK_TEST(Fabric, WaitingKeepsNoPort, 2) {
  const auto fabric = shared_fabric(world);
  if (world.global_rank() != 0) return;
  const int32_t long_one = opened(*fabric, {1, 10 * kMs, 0, {0}});
  const int32_t both = opened(*fabric, {1, 5 * kMs, 1, {0, 1}});
  const int32_t short_one = opened(*fabric, {1, 5 * kMs, 2, {1}});
  const auto first = fabric->pass(long_one, 0);
  EXPECT_EQ(first->begin_ns, 0);
  Fabric::Span waited;
  std::thread waits([&] { waited = *fabric->pass(both, 1 * kMs); });
  const auto other = fabric->pass(short_one, 2 * kMs);
  EXPECT_EQ(other->begin_ns, 2 * kMs);
  EXPECT_EQ(other->end_ns, 7 * kMs);
  fabric->leave(short_one);
  fabric->leave(long_one);
  waits.join();
  EXPECT_EQ(waited.begin_ns, 10 * kMs);
  EXPECT_EQ(waited.end_ns, 15 * kMs);
  fabric->leave(both);
}

// It begins when both sides are ready, whoever comes last, and both learn the same.
RANK_TEST(Fabric, BothSidesMustBeReady, 2) {
  const auto fabric = shared_fabric(world);
  Communicator& everyone = **world.everyone();
  const bool first = world.global_rank() == 0;
  const int32_t slot = first ? opened(*fabric, {2, 4 * kMs, 0, {0, 1}}) : 0;  // the first slot
  EXPECT_TRUE(everyone.barrier("opened").ok());
  const auto span = fabric->pass(slot, first ? 3 * kMs : 9 * kMs);
  ASSERT_TRUE(span.ok()) << span.status().message();
  EXPECT_EQ(span->begin_ns, 9 * kMs);
  EXPECT_EQ(span->end_ns, 13 * kMs);
  fabric->leave(slot);
}

TEST(EndTimes, AWaitEndsWithTheTimeOrTheFailure) {
  EndTimes ends(2);
  Result<int64_t> seen = int64_t{-1};
  std::thread waits([&] { seen = ends.wait(0); });
  ends.set(0, 7);
  waits.join();
  EXPECT_EQ(*seen, 7);
  std::thread fails([&] { seen = ends.wait(1); });
  ends.fail({Code::kUnavailable, "a peer is gone"});
  fails.join();
  EXPECT_EQ(seen.status().message(), "a peer is gone");
  EXPECT_EQ(*ends.wait(0), 7);  // what is there stays
}

}  // namespace
}  // namespace braid::inline emulate

// The rule by which transfers get ports.
#include "emulate/fabric.h"

#include <gmock/gmock.h>

#include "comm/rank_testing.h"

namespace braid::inline emulate {
namespace {

constexpr int64_t kMs = 1000000;
constexpr uint64_t kLong = 7, kBoth = 8, kShort = 9;  // transfers

std::unique_ptr<Fabric> shared_fabric(World& world) {
  auto everyone = world.everyone();
  EXPECT_TRUE(everyone.ok());
  auto fabric = Fabric::share(**everyone, {.ports = 4, .grace_ns = 0, .deadline_s = 60});
  EXPECT_TRUE(fabric.ok()) << fabric.status().message();
  (*fabric)->set_clock(EmulatedClock(EmulatedClock::machine_ns(), 1));
  return std::move(*fabric);
}

// A transfer that waits for a port keeps no other one busy, and begins when the last is free.
RANK_TEST(Fabric, WaitingKeepsNoPort, 2) {
  const auto fabric = shared_fabric(world);
  if (world.global_rank() != 0) return;
  const Fabric::Transfer long_one{1, 1, 10 * kMs, 0, {0}}, both{1, 1, 5 * kMs, 1, {0, 1}},
      short_one{1, 1, 5 * kMs, 2, {1}};
  ASSERT_TRUE(fabric->come(kBoth, 1 * kMs, &both).ok());
  ASSERT_TRUE(fabric->come(kLong, 0, &long_one).ok());
  const auto first = fabric->await(kLong);
  EXPECT_EQ(first->begin_ns, 0);
  const auto other = fabric->pass(kShort, 2 * kMs, &short_one);
  EXPECT_EQ(other->begin_ns, 2 * kMs);
  EXPECT_EQ(other->end_ns, 7 * kMs);
  const auto waited = fabric->await(kBoth);
  EXPECT_EQ(waited->begin_ns, 10 * kMs);
  EXPECT_EQ(waited->end_ns, 15 * kMs);
}

// Served long after it, transfers pass as they would have: of those that want a port the one that
// was ready first, of those ready at once the one of lower order.
RANK_TEST(Fabric, LateServiceKeepsTheRule, 2) {
  const auto fabric = shared_fabric(world);
  if (world.global_rank() != 0) return;
  const Fabric::Transfer second{1, 1, 4 * kMs, 8, {0}}, third{1, 1, 4 * kMs, 9, {0}},
      first{1, 1, 4 * kMs, 7, {0}};
  ASSERT_TRUE(fabric->come(kShort, 2 * kMs, &third).ok());
  ASSERT_TRUE(fabric->come(kBoth, 2 * kMs, &second).ok());
  ASSERT_TRUE(fabric->come(kLong, 1 * kMs, &first).ok());
  EmulatedClock(EmulatedClock::machine_ns(), 1).sleep_until(20 * kMs);
  EXPECT_EQ(fabric->await(kShort)->begin_ns, 9 * kMs);
  EXPECT_EQ(fabric->await(kBoth)->begin_ns, 5 * kMs);
  EXPECT_EQ(fabric->await(kLong)->begin_ns, 1 * kMs);
}

// What was ready early and comes late passes where its port was free.
RANK_TEST(Fabric, ComesLateToAFreePort, 2) {
  const auto fabric = shared_fabric(world);
  if (world.global_rank() != 0) return;
  const Fabric::Transfer later{1, 1, 4 * kMs, 0, {0}}, early{1, 1, 4 * kMs, 0, {0, 1}},
      too_long{1, 1, 5 * kMs, 0, {0}};
  EXPECT_EQ(fabric->pass(kLong, 8 * kMs, &later)->begin_ns, 8 * kMs);
  EXPECT_EQ(fabric->pass(kShort, 1 * kMs, &early)->begin_ns, 1 * kMs);
  EXPECT_EQ(fabric->pass(kBoth, 2 * kMs, &too_long)->begin_ns, 12 * kMs);
}

// It begins when both sides are ready, whoever comes last, and both learn the same.
RANK_TEST(Fabric, BothSidesMustBeReady, 2) {
  const auto fabric = shared_fabric(world);
  const bool first = world.global_rank() == 0;
  const Fabric::Transfer said{2, 2, 4 * kMs, 0, {0, 1}};
  const auto span = fabric->pass(kBoth, first ? 3 * kMs : 9 * kMs, first ? &said : nullptr);
  ASSERT_TRUE(span.ok()) << span.status().message();
  EXPECT_EQ(span->begin_ns, 9 * kMs);
  EXPECT_EQ(span->end_ns, 13 * kMs);
  EXPECT_TRUE((**world.everyone()).barrier("both have passed").ok());
}

// Who awaits a transfer may come before anyone has.
RANK_TEST(Fabric, AwaitedBeforeItIsSaid, 2) {
  const auto fabric = shared_fabric(world);
  if (world.global_rank() == 0) {
    EmulatedClock(EmulatedClock::machine_ns(), 1).sleep_until(20 * kMs);
    const Fabric::Transfer said{1, 1, 4 * kMs, 0, {0}};
    EXPECT_TRUE(fabric->come(kLong, 6 * kMs, &said).ok());
  } else {
    EXPECT_EQ(fabric->await(kLong)->begin_ns, 6 * kMs);
  }
  EXPECT_TRUE((**world.everyone()).barrier("it has passed").ok());
}

}  // namespace
}  // namespace braid::inline emulate

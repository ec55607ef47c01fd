// How long the weights of a role take from one layout to another, from what each device has to send
// and to receive inside its node and over the network: the loads of the messages that
// program/reallocation.h plans, without the messages, and the time to pass on what arrives last. A
// piece enters a node once, at the receivers that lack it in turn, who pass it on there; where
// owners alone would be too busy, whoever has a piece passes it on, and each waits for the one
// before.
// Prices are kept in a table that threads share; they are a function of the arguments. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace braid::inline search {

struct PlanSpace;
struct RoleSpace;
struct PlanOption;

// Prices by (layout, layout) in 64-bit words that hold both numbers and the price, so that a word
// is right or empty whoever writes it.
class MoveMemo {
 public:
  MoveMemo() : words_(kWords) {}
  // Microseconds of the move between two layout numbers; -1 if not kept.
  int64_t find(int32_t from, int32_t to) const;
  void keep(int32_t from, int32_t to, int64_t us);

 private:
  static constexpr size_t kWords = size_t{1} << 16;
  std::vector<std::atomic<uint64_t>> words_;
};

// Microseconds in which ranks that share slices of weights (ZeRO-3) bring together what they give,
// before its messages go, and what has come, when all of it is there.
int64_t slices_us(const PlanOption& from, const PlanOption& to);

// Microseconds to fill the weights of `to` from `from`, both of one role, when all devices begin at
// once: slices and messages; 0 for equal layouts and for weights that nothing changes, whose copies
// stay.
int64_t move_us(const PlanSpace& space, const RoleSpace& role, const PlanOption& from,
                const PlanOption& to);

}  // namespace braid::inline search

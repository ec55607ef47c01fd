// How much of the cluster a call takes, counted in several ways. Each way is a dual feasible
// function of its number of devices (Fekete and Schepers, New classes of fast lower bounds for bin
// packing problems, 2001): whatever runs side by side adds up to at most the whole cluster. So the
// demands of all calls, over the whole cluster, bound the time that they take from below.
// Constants; safe to share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::tabular {

inline constexpr int kDemands = 8;
inline constexpr int64_t kDeviceShare = 12;  // of one device in the first way of counting

// Time multiplied by shares of devices; by way of counting.
using Demand = std::array<int64_t, kDemands>;

// Shares by number of devices, 0 to num_devices; the whole cluster is num_devices * kDeviceShare in
// all ways: plain device time, four ways that round to halves up to fifths, and three that count
// wide calls as all devices and narrow ones as none.
std::vector<Demand> demand_shares(int32_t num_devices);

inline void add(Demand& sum, const Demand& one) {
  for (size_t k = 0; k < kDemands; ++k) sum[k] += one[k];
}

inline void take_least(Demand& least, const Demand& one) {
  for (size_t k = 0; k < kDemands; ++k) least[k] = std::min(least[k], one[k]);
}

inline Demand demand_of(const Demand& share, int64_t time_us) {
  Demand demand;
  for (size_t k = 0; k < kDemands; ++k) demand[k] = share[k] * time_us;
  return demand;
}

// The time that a demand takes at least on a cluster of this many shares.
inline int64_t least_time_us(const Demand& demand, int64_t whole) {
  return (*std::max_element(demand.begin(), demand.end()) + whole - 1) / whole;
}

}  // namespace braid::tabular

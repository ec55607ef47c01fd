#include "tabular/demand.h"

namespace braid::tabular {
namespace {

constexpr int kRoundings = 4;  // to k-ths of the cluster, k = 1 to 4; they divide kDeviceShare
constexpr int kEighths = 3;    // wide and narrow: all but, and less than, j eighths of the cluster

// Rounds down to k-ths where a call takes no whole number of (k + 1)-ths.
int64_t rounded_share(int64_t devices, int64_t all, int64_t k) {
  if ((k + 1) * devices % all == 0) return devices * kDeviceShare;
  return (k + 1) * devices / all * (all * kDeviceShare / k);
}

int64_t wide_share(int64_t devices, int64_t all, int64_t eighths) {
  if (8 * devices > (8 - eighths) * all) return all * kDeviceShare;
  return 8 * devices < eighths * all ? 0 : devices * kDeviceShare;
}

}  // namespace

std::vector<Demand> demand_shares(int32_t num_devices) {
  static_assert(1 + kRoundings + kEighths == kDemands);
  std::vector<Demand> shares;
  for (int32_t devices = 0; devices <= num_devices; ++devices) {
    Demand share{};
    size_t way = 0;
    share[way++] = devices * kDeviceShare;
    for (int k = 1; k <= kRoundings; ++k) share[way++] = rounded_share(devices, num_devices, k);
    for (int j = 1; j <= kEighths; ++j) share[way++] = wide_share(devices, num_devices, j);
    shares.push_back(share);
  }
  return shares;
}

}  // namespace braid::tabular

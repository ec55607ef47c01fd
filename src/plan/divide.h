// The division of a cluster into disjoint parts. Pure; thread-safe.
#pragma once

#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"

namespace braid::inline plan {

struct ClusterPart {
  double share = 1;  // of the work: any positive number, in proportion to those of the other parts
  int64_t unit = 1;  // the part has a multiple of so many devices
};

// How much longer the part that works longest may take than in the best division, for parts that
// keep nodes whole: for shares that somebody states, and for those that are estimates of work.
inline constexpr double kStatedSlack = 0.05, kEstimateSlack = 0.15;

// Divides a cluster into runs of devices, one for each part: no device in two of them, none in
// none. Among the divisions in which no part works more than `slack` longer than in the best one
// (its share divided by the speed of its devices), the one whose parts share the fewest nodes and
// NVLink domains that they have not alone; then the most even one; then the one whose runs are in
// the order of the parts. Above 512 devices parts end with nodes. REQUIRES: shares are finite and
// positive, units positive. Errors: more parts than devices; multiples that cannot cover the
// cluster, with the nearest numbers of devices that they could.
Result<std::vector<DeviceMesh>> divide_cluster(const Cluster& cluster,
                                               const std::vector<ClusterPart>& parts,
                                               double slack = kStatedSlack);

}  // namespace braid::inline plan

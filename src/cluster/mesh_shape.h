// What of a device mesh the price of work on it depends on: how many devices, how they sit on nodes
// and NVLink domains, which kinds they are of, and its slowest links. Pure values; thread-safe.
//
// Work on several kinds of devices ends with the last of them, and which is the last depends on the
// work: one computes slower, another reads its memory slower. So a price is taken for every kind,
// over the links that all share, and the largest counts.
#pragma once

#include <vector>

#include "cluster/cluster.h"

namespace braid::inline cluster {

struct MeshShape {
  int devices = 1;
  int per_node = 1;             // devices of the mesh on one of its nodes
  double nic_gbps_per_gpu = 0;  // the slowest of its nodes
  std::vector<GpuSpec> kinds;   // distinct devices, those with the least memory first
  GpuSpec links;                // of the first kind: with the slowest NVLink and host link, and as
                                // nvlink_domain_gpus the devices of the mesh in one domain
  const GpuSpec& smallest() const { return kinds.front(); }
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

// REQUIRES: validate_mesh(cluster, mesh) is ok.
MeshShape shape_of(const Cluster& cluster, const DeviceMesh& mesh);

}  // namespace braid::inline cluster

// Prices of communication: collectives and point-to-point transfers, by algorithm and message size,
// hierarchical over NVLink and network. Pure functions; thread-safe.
#pragma once

#include <string>

#include "cluster/cluster.h"
#include "pricing/efficiency.h"
#include "pricing/profile.h"

namespace braid::inline pricing {

enum class CollectiveOp { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast };
enum class CollectiveAlgorithm { kAutomatic, kRing, kNvls };
const char* collective_name(CollectiveOp op);
Result<CollectiveOp> parse_collective(const std::string& text);

// Devices that communicate, and how they sit on the machine.
struct CollectiveGroup {
  int members = 1;
  int per_domain = 1;              // members that share one NVLink domain (or, over PCIe, one node)
  double inside_gbytes_per_s = 0;  // NVLink or PCIe rate, one direction
  bool nvlink = true;
  bool in_switch = false;  // the switch can reduce (NVLS: Hopper and Blackwell)
  double nic_gbps_per_gpu = 0;
};

// The group of `members` devices, `stride` apart, on nodes of `gpus_per_node`: per_domain follows
// from the NVLink domain (nvlink_domain_devices). A stride of t means that t such groups share each
// node (tensor-parallel ranks are neighbours). Members on one node that no one NVLink domain holds
// (more cards than a bridge joins) exchange over PCIe: a ring is as fast as its slowest link.
CollectiveGroup make_group(const GpuSpec& gpu, int members, int stride, int gpus_per_node,
                           double nic_gbps_per_gpu);

// Bytes that each member sends over bytes of the buffer: all-reduce 2(n-1)/n, all-gather,
// reduce-scatter and all-to-all (n-1)/n, broadcast 1 (nccl-tests, doc/PERFORMANCE.md).
double bus_factor(CollectiveOp op, int members);

// Seconds of one collective; `bytes` is the full buffer as nccl-tests counts it. With w = the wire
// time of the slowest level and a = the latency, a chunked pipeline takes a + w + c sqrt(a w)
// (optimal chunk size; Thakur, Rabenseifner and Gropp 2005 for a, w; c = pipeline_fill). Rings
// reach nvlink_ring_share of the link; in-switch reduction serves all-reduce only, above four
// devices, at nvls_share of the link whatever the number of devices; a ring over nodes is bound by
// the NICs of a node together.
double collective_s(CollectiveOp op, double bytes, const CollectiveGroup& group,
                    const Efficiency& efficiency,
                    CollectiveAlgorithm algorithm = CollectiveAlgorithm::kAutomatic);

// Seconds to send bytes to one peer: latency and wire time over NVLink inside a domain, else over
// one NIC.
double send_s(double bytes, bool inside_domain, const CollectiveGroup& group,
              const Efficiency& efficiency);

}  // namespace braid::inline pricing

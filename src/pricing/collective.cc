#include "pricing/collective.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace braid::inline pricing {
namespace {

constexpr int kLargestRingBeforeNvls = 4;

double inside_rate(const CollectiveGroup& group, const Efficiency& efficiency) {
  return group.inside_gbytes_per_s * 1e9 *
         (group.nvlink ? efficiency.nvlink_ring_share : efficiency.pcie_share);
}

double nic_rate(const CollectiveGroup& group, const Efficiency& efficiency) {
  return group.nic_gbps_per_gpu / 8 * 1e9 * efficiency.network_share;
}

bool spans_domains(const CollectiveGroup& group) { return group.members > group.per_domain; }

// Every member sends its share directly to every other one.
double all_to_all_wire_s(double bytes, const CollectiveGroup& group, const Efficiency& efficiency) {
  const double members = group.members, near = group.per_domain - 1,
               far = group.members - group.per_domain;
  const double inside = near > 0 ? bytes * near / members / inside_rate(group, efficiency) : 0;
  const double outside = far > 0 ? bytes * far / members / nic_rate(group, efficiency) : 0;
  return std::max(inside, outside);
}

double ring_wire_s(CollectiveOp op, double bytes, const CollectiveGroup& group,
                   const Efficiency& efficiency) {
  double rate = group.per_domain > 1 ? inside_rate(group, efficiency) : HUGE_VAL;
  if (spans_domains(group)) rate = std::min(rate, group.per_domain * nic_rate(group, efficiency));
  return bytes * bus_factor(op, group.members) / rate;
}

bool uses_switch(CollectiveOp op, const CollectiveGroup& group, CollectiveAlgorithm algorithm) {
  if (op != CollectiveOp::kAllReduce || spans_domains(group)) return false;
  if (algorithm != CollectiveAlgorithm::kAutomatic) return algorithm == CollectiveAlgorithm::kNvls;
  return group.in_switch && group.members > kLargestRingBeforeNvls;
}

double latency_s(const CollectiveGroup& group, const Efficiency& efficiency) {
  const double network = spans_domains(group) ? efficiency.network_latency_us : 0;
  return (efficiency.nvlink_latency_us + network) * 1e-6;
}

}  // namespace

const char* collective_name(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce:
      return "all_reduce";
    case CollectiveOp::kAllGather:
      return "all_gather";
    case CollectiveOp::kReduceScatter:
      return "reduce_scatter";
    case CollectiveOp::kAllToAll:
      return "all_to_all";
    case CollectiveOp::kBroadcast:
      return "broadcast";
  }
  return "?";
}

Result<CollectiveOp> parse_collective(const std::string& text) {
  for (const CollectiveOp op :
       {CollectiveOp::kAllReduce, CollectiveOp::kAllGather, CollectiveOp::kReduceScatter,
        CollectiveOp::kAllToAll, CollectiveOp::kBroadcast})
    if (text == collective_name(op)) return op;
  return invalid_input(cat("unknown collective '", text, "'"));
}

CollectiveGroup make_group(const GpuSpec& gpu, int members, int stride, int gpus_per_node,
                           double nic_gbps_per_gpu) {
  const auto sharing = [&](int devices) {
    return std::clamp(devices / std::max(stride, 1), 1, members);
  };
  const int domain = nvlink_domain_devices(gpu, gpus_per_node), in_node = sharing(gpus_per_node);
  CollectiveGroup group;
  group.members = members;
  group.nvlink = domain > 1 && sharing(domain) >= in_node;
  group.per_domain = group.nvlink ? sharing(domain) : in_node;
  group.inside_gbytes_per_s = group.nvlink ? gpu.nvlink_gbytes_per_s : gpu.pcie_gbytes_per_s;
  group.in_switch =
      group.nvlink && (gpu.architecture == "hopper" || gpu.architecture == "blackwell");
  group.nic_gbps_per_gpu = nic_gbps_per_gpu > 0 ? nic_gbps_per_gpu : gpu.nic_gbps_per_gpu;
  return group;
}

double bus_factor(CollectiveOp op, int members) {
  const double share = (members - 1.0) / members;
  if (op == CollectiveOp::kAllReduce) return 2 * share;
  return op == CollectiveOp::kBroadcast ? 1 : share;
}

double collective_s(CollectiveOp op, double bytes, const CollectiveGroup& group,
                    const Efficiency& efficiency, CollectiveAlgorithm algorithm) {
  if (group.members <= 1) return 0;
  double wire = 0;
  if (uses_switch(op, group, algorithm)) {
    wire = bytes / (group.inside_gbytes_per_s * 1e9 * efficiency.nvls_share);
  } else if (op == CollectiveOp::kAllToAll) {
    wire = all_to_all_wire_s(bytes, group, efficiency);
  } else {
    wire = ring_wire_s(op, bytes, group, efficiency);
  }
  const double latency = latency_s(group, efficiency);
  return latency + wire + efficiency.pipeline_fill * std::sqrt(latency * wire);
}

double send_s(double bytes, bool inside_domain, const CollectiveGroup& group,
              const Efficiency& efficiency) {
  if (inside_domain)
    return efficiency.nvlink_latency_us * 1e-6 + bytes / inside_rate(group, efficiency);
  return efficiency.network_latency_us * 1e-6 + bytes / nic_rate(group, efficiency);
}

}  // namespace braid::inline pricing

#include "cluster/mesh_shape.h"

#include <algorithm>
#include <set>

namespace braid::inline cluster {
namespace {

// Distinct kinds of devices, those with the least memory first.
std::vector<GpuSpec> kinds_of(const Cluster& cluster, const std::set<int>& nodes) {
  std::vector<GpuSpec> kinds;
  for (const int n : nodes)
    if (std::find(kinds.begin(), kinds.end(), cluster.nodes[n].gpu) == kinds.end())
      kinds.push_back(cluster.nodes[n].gpu);
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const GpuSpec& a, const GpuSpec& b) { return a.hbm_bytes < b.hbm_bytes; });
  return kinds;
}

}  // namespace

MeshShape shape_of(const Cluster& cluster, const DeviceMesh& mesh) {
  std::set<int> nodes;
  std::set<NvlinkDomain> domains;
  for (const DeviceId device : mesh.devices) {
    nodes.insert(node_of(cluster, device));
    domains.insert(nvlink_domain_of(cluster, device));
  }
  MeshShape shape;
  shape.devices = static_cast<int>(mesh.devices.size());
  shape.per_node = std::max(1, shape.devices / static_cast<int>(nodes.size()));
  shape.nic_gbps_per_gpu = cluster.nodes[*nodes.begin()].nic_gbps_per_gpu;
  shape.kinds = kinds_of(cluster, nodes);
  shape.links = shape.smallest();
  shape.links.nvlink_domain_gpus = std::max(1, shape.devices / static_cast<int>(domains.size()));
  for (const int n : nodes) {
    const Node& node = cluster.nodes[n];
    shape.nic_gbps_per_gpu = std::min(shape.nic_gbps_per_gpu, node.nic_gbps_per_gpu);
    for (double GpuSpec::*rate : {&GpuSpec::nvlink_gbytes_per_s, &GpuSpec::pcie_gbytes_per_s})
      shape.links.*rate = std::min(shape.links.*rate, node.gpu.*rate);
  }
  return shape;
}

}  // namespace braid::inline cluster

#include "cluster/cluster.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace braid::inline cluster {
namespace {

int first_device(const Cluster& cluster, int node) {
  int first = 0;
  for (int i = 0; i < node; ++i) first += cluster.nodes[i].devices;
  return first;
}

DeviceMesh device_range(int first, int count) {
  DeviceMesh mesh;
  for (int i = 0; i < count; ++i) mesh.devices.push_back(DeviceId{first + i});
  return mesh;
}

void append_node_meshes(const Cluster& cluster, int node, std::vector<DeviceMesh>* meshes) {
  const int devices = cluster.nodes[node].devices, first = first_device(cluster, node);
  for (int offset = 0; offset < devices; ++offset)
    for (int size = 1; size < devices; size *= 2)
      if (offset % size == 0 && offset + size <= devices)
        meshes->push_back(device_range(first + offset, size));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Cluster& cluster) {
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    const Node& node = cluster.nodes[i];
    out << (i ? ", " : "") << node.devices << "x " << node.gpu.key << " @" << node.nic_gbps_per_gpu
        << " Gbit/s";
  }
  return out;
}

int nvlink_domain_devices(const GpuSpec& gpu, int node_devices) {
  if (gpu.nvlink_gbytes_per_s <= 0) return 1;
  const int nodes = gpu.nvlink_domain_gpus / node_devices;
  const bool rack = gpu.nvlink_domain_gpus > gpu.gpus_per_node && nodes > 1;
  return rack ? nodes * node_devices : std::min(gpu.nvlink_domain_gpus, node_devices);
}

Result<Cluster> make_cluster(const GpuSpec& gpu, int nodes, int devices, double nic_gbps_per_gpu) {
  if (nodes < 1) return invalid_input(cat("a cluster needs at least one node, got ", nodes));
  if (devices < 1 || devices > kMaxDevicesPerNode)
    return invalid_input(cat("gpus_per_node must be 1 to ", kMaxDevicesPerNode, ", got ", devices));
  Cluster cluster;
  const int nodes_per_domain = nvlink_domain_devices(gpu, devices) / devices;
  for (int i = 0; i < nodes; ++i) {
    const int domain = nodes_per_domain > 1 ? i / nodes_per_domain : -1;
    cluster.nodes.push_back(
        {gpu, devices, nic_gbps_per_gpu > 0 ? nic_gbps_per_gpu : gpu.nic_gbps_per_gpu, domain});
  }
  return cluster;
}

int device_count(const Cluster& cluster) {
  return first_device(cluster, static_cast<int>(cluster.nodes.size()));
}

int node_of(const Cluster& cluster, DeviceId device) {
  int first = 0;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    if (device.value < first + cluster.nodes[i].devices) return static_cast<int>(i);
    first += cluster.nodes[i].devices;
  }
  BRAID_CHECK(false, cat("device ", device, " is outside the cluster of ", first));
}

std::vector<int32_t> nodes_of(const Cluster& cluster) {
  std::vector<int32_t> out;
  for (size_t node = 0; node < cluster.nodes.size(); ++node)
    out.insert(out.end(), cluster.nodes[node].devices, static_cast<int32_t>(node));
  return out;
}

const GpuSpec& gpu_of(const Cluster& cluster, DeviceId device) {
  return cluster.nodes[node_of(cluster, device)].gpu;
}

NvlinkDomain nvlink_domain_of(const Cluster& cluster, DeviceId device) {
  const int index = node_of(cluster, device);
  const Node& node = cluster.nodes[index];
  if (node.nvlink_domain >= 0) return {-1 - node.nvlink_domain, 0};
  const int local = device.value - first_device(cluster, index);
  return {index, local / nvlink_domain_devices(node.gpu, node.devices)};
}

Link link_between(const Cluster& cluster, DeviceId from, DeviceId to) {
  if (from == to) return {LinkKind::kSame, gpu_of(cluster, from).hbm_gbytes_per_s};
  const Node &a = cluster.nodes[node_of(cluster, from)], &b = cluster.nodes[node_of(cluster, to)];
  if (nvlink_domain_of(cluster, from) == nvlink_domain_of(cluster, to))
    return {LinkKind::kNvlink, std::min(a.gpu.nvlink_gbytes_per_s, b.gpu.nvlink_gbytes_per_s)};
  if (&a == &b) return {LinkKind::kPcie, a.gpu.pcie_gbytes_per_s};
  return {LinkKind::kNetwork, std::min(a.nic_gbps_per_gpu, b.nic_gbps_per_gpu) / 8};
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  const bool run = !mesh.devices.empty() &&
                   mesh.devices.back().value - mesh.devices.front().value + 1 ==
                       static_cast<int>(mesh.devices.size()) &&
                   std::is_sorted(mesh.devices.begin(), mesh.devices.end());
  if (run && mesh.devices.size() > 1)
    return out << "[" << mesh.devices.front() << "-" << mesh.devices.back() << "]";
  out << "[";
  for (size_t i = 0; i < mesh.devices.size(); ++i) out << (i ? "," : "") << mesh.devices[i];
  return out << "]";
}

Status validate_mesh(const Cluster& cluster, const DeviceMesh& mesh) {
  if (mesh.devices.empty()) return invalid_input("a device mesh needs at least one device");
  const int count = device_count(cluster);
  std::set<DeviceId> seen;
  for (const DeviceId device : mesh.devices) {
    if (device.value < 0 || device.value >= count)
      return invalid_input(
          cat("device ", device, " does not exist; the cluster has devices 0 to ", count - 1));
    if (!seen.insert(device).second)
      return invalid_input(cat("device ", device, " is twice in mesh ", mesh));
  }
  return ok_status();
}

DeviceMesh whole_cluster(const Cluster& cluster) { return device_range(0, device_count(cluster)); }

Result<DeviceMesh> contiguous_mesh(const Cluster& cluster, int first, int count) {
  const int total = device_count(cluster);
  if (first < 0 || count < 1 || count > total || first > total - count)
    return invalid_input(
        cat(count, " devices from ", first, " do not fit into the cluster's ", total));
  return device_range(first, count);
}

std::vector<DeviceMesh> candidate_meshes(const Cluster& cluster) {
  std::vector<DeviceMesh> meshes;
  const int nodes = static_cast<int>(cluster.nodes.size());
  for (int node = 0; node < nodes; ++node) {
    append_node_meshes(cluster, node, &meshes);
    int count = 0;
    for (int last = node; last < nodes; ++last) {
      count += cluster.nodes[last].devices;
      meshes.push_back(device_range(first_device(cluster, node), count));
    }
  }
  const auto key = [](const DeviceMesh& mesh) {
    return std::pair(mesh.devices.front(), mesh.devices.size());
  };
  std::sort(meshes.begin(), meshes.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  return meshes;
}

bool overlaps(const DeviceMesh& a, const DeviceMesh& b) {
  std::vector<DeviceId> devices = a.devices;
  std::sort(devices.begin(), devices.end());
  return std::any_of(b.devices.begin(), b.devices.end(), [&](DeviceId device) {
    return std::binary_search(devices.begin(), devices.end(), device);
  });
}

int nodes_spanned(const Cluster& cluster, const DeviceMesh& mesh) {
  std::set<int> nodes;
  for (const DeviceId device : mesh.devices) nodes.insert(node_of(cluster, device));
  return static_cast<int>(nodes.size());
}

}  // namespace braid::inline cluster

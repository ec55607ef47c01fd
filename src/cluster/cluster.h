// The cluster that a plan is made for: nodes of devices, possibly of different classes, with the
// links between them, and device meshes on it. Pure values. Invariants of a Cluster that a factory
// or parser returns: at least one node, 1 to 16 devices per node, links of positive speed; devices
// are numbered 0.. node by node.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/yaml.h"
#include "cluster/gpu.h"

namespace braid::inline cluster {

inline constexpr int kMaxDevicesPerNode = 16;

struct Node {
  GpuSpec gpu;
  int devices = 1;
  double nic_gbps_per_gpu = 0;  // network of each device, 1e9 bit/s
  int nvlink_domain =
      -1;  // nodes with equal non-negative numbers share one NVLink domain (GB200 racks)
  std::string profile = "";  // file of times measured on these devices; "" = none
  friend bool operator==(const Node&, const Node&) = default;
};

struct Cluster {
  std::vector<Node> nodes;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};
std::ostream& operator<<(std::ostream& out, const Cluster& cluster);

// How bytes travel between two devices, and how fast one device can send (1e9 bytes/s, one
// direction).
enum class LinkKind { kSame, kNvlink, kPcie, kNetwork };
struct Link {
  LinkKind kind = LinkKind::kSame;
  double gbytes_per_s = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// Devices with consecutive numbers that reach each other over NVLink where each node has
// `node_devices` of a kind; 1 without NVLink. A domain ends with its node (or earlier: bridges join
// two cards), unless the product joins more devices than one of its nodes has: then it holds as
// many whole nodes as fit (GB200 racks).
int nvlink_domain_devices(const GpuSpec& gpu, int node_devices);

// `nodes` equal nodes of `devices` devices with the links of the catalogue; NVLink domains that
// span nodes are filled in node order. nic_gbps_per_gpu 0 takes the catalogue's. Errors: sizes
// outside 1..16 devices, no nodes.
Result<Cluster> make_cluster(const GpuSpec& gpu, int nodes, int devices,
                             double nic_gbps_per_gpu = 0);

// The device that a profile was measured on, by the profile's path.
using ProfiledGpu = std::function<Result<GpuSpec>(const std::string& path)>;

// Reads a YAML map: either `gpu`, `nodes` (a number), `gpus_per_node`, or `nodes` as a list of maps
// with `gpu`, `gpus_per_node`, `count`; each may set `nic_gbps_per_gpu`, `nvlink_gbytes_per_s`,
// `pcie_gbytes_per_s`, `hbm_gib`, and `profile`, whose device then takes the place of the
// catalogue's (`gpu` may be left out). Errors carry the line of the value and the rule; without
// `profiled` a profile is one.
Result<Cluster> cluster_from_yaml(const YamlNode& node, const ProfiledGpu& profiled = {});
Result<Cluster> parse_cluster(std::string_view text, const std::string& where);
Json cluster_json(const Cluster& cluster);
Result<Cluster> cluster_from_json(const Json& json);

int device_count(const Cluster& cluster);
// Index of the node that holds a device. REQUIRES: the device exists.
int node_of(const Cluster& cluster, DeviceId device);
// The same for all devices: [device].
std::vector<int32_t> nodes_of(const Cluster& cluster);
const GpuSpec& gpu_of(const Cluster& cluster, DeviceId device);
// The NVLink domain of a device; devices with equal ones are joined by NVLink.
struct NvlinkDomain {
  int place = 0;  // a node, or -1 - the number of a domain that spans nodes
  int part = 0;   // of the node
  friend auto operator<=>(const NvlinkDomain&, const NvlinkDomain&) = default;
};
NvlinkDomain nvlink_domain_of(const Cluster& cluster, DeviceId device);
// The fastest link between two devices. REQUIRES: both exist.
Link link_between(const Cluster& cluster, DeviceId from, DeviceId to);

// An ordered list of distinct devices; the order decides which coordinates a device gets in a
// strategy.
struct DeviceMesh {
  std::vector<DeviceId> devices;
  friend bool operator==(const DeviceMesh&, const DeviceMesh&) = default;
};
std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);
Json mesh_json(const DeviceMesh& mesh);
Result<DeviceMesh> mesh_from_json(const Json& json);
// Errors: an empty mesh, a device twice, a device that the cluster does not have.
Status validate_mesh(const Cluster& cluster, const DeviceMesh& mesh);

DeviceMesh whole_cluster(const Cluster& cluster);
// Devices first..first+count-1. Errors: outside the cluster.
Result<DeviceMesh> contiguous_mesh(const Cluster& cluster, int first, int count);
// All meshes that a search considers: aligned power-of-two parts of each node, whole nodes, and
// every contiguous run of whole nodes, each once, in order of the first device, then of size.
std::vector<DeviceMesh> candidate_meshes(const Cluster& cluster);
bool overlaps(const DeviceMesh& a, const DeviceMesh& b);
int nodes_spanned(const Cluster& cluster, const DeviceMesh& mesh);

}  // namespace braid::inline cluster

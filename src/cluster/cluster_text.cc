// Cluster and DeviceMesh from and to text.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "cluster/cluster.h"

namespace braid::inline cluster {
namespace {

Status wrong(const YamlNode& node, const std::string& what) {
  return invalid_input(what).at(node.origin);
}

Result<int> yaml_count(const YamlNode& map, const char* key, int fallback, int limit) {
  const YamlNode* value = map.find(key);
  if (value == nullptr) return fallback;
  int64_t number = 0;
  if (value->kind != YamlNode::Kind::kScalar || !parse_int(value->scalar, &number) || number < 1 ||
      number > limit)
    return wrong(*value, cat(key, " must be a whole number from 1 to ", limit, ", is '",
                             value->scalar, "'"));
  return static_cast<int>(number);
}

// Numbers that no device has are mistakes of unit; between them lies a factor of ten thousand
// around those of the catalogue.
struct SpeedKey {
  const char* name;
  double least, most;
};
constexpr SpeedKey kNic{"nic_gbps_per_gpu", 0.1, 1e5};
constexpr SpeedKey kNvlink{"nvlink_gbytes_per_s", 0.1, 1e5};
constexpr SpeedKey kPcie{"pcie_gbytes_per_s", 0.1, 1e4};
constexpr SpeedKey kHbm{"hbm_gib", 0.25, 16384};

Result<double> yaml_speed(const YamlNode& map, const SpeedKey& key, double fallback) {
  const YamlNode* value = map.find(key.name);
  if (value == nullptr) return fallback;
  double number = 0;
  if (value->kind != YamlNode::Kind::kScalar || !parse_double(value->scalar, &number) ||
      !(number >= key.least && number <= key.most))
    return wrong(*value, cat(key.name, " must be a number from ", format_double(key.least), " to ",
                             static_cast<int64_t>(key.most), ", is '", value->scalar, "'"));
  return number;
}

Status check_keys(const YamlNode& map, const std::vector<std::string>& allowed) {
  for (const auto& [key, value] : map.map) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
      return wrong(value, cat("unknown key '", key, "'", did_you_mean(key, allowed),
                              "; allowed: ", join(allowed, ", ")));
  }
  return ok_status();
}

Result<GpuSpec> read_gpu(const YamlNode& map) {
  const YamlNode* name = map.find("gpu");
  if (name == nullptr)
    return wrong(map,
                 "missing key 'gpu': name a device of the catalogue, such as h100-80g, or a "
                 "'profile'");
  if (name->kind != YamlNode::Kind::kScalar) return wrong(*name, "gpu must be a name");
  return find_gpu(name->scalar).at(name->origin);
}

// The device of the node's profile, which must be the one that `gpu` names, if it names one.
Result<GpuSpec> read_profiled_gpu(const YamlNode& map, const YamlNode& path,
                                  const ProfiledGpu& profiled) {
  if (path.kind != YamlNode::Kind::kScalar || path.scalar.empty())
    return wrong(path, "profile must be the path of a file that 'braid profile' wrote");
  if (!profiled) return wrong(path, "profile: a profile cannot be read here");
  BRAID_ASSIGN(GpuSpec gpu, profiled(path.scalar).at(cat(path.origin, ": profile")));
  if (map.find("gpu") == nullptr) return gpu;
  BRAID_ASSIGN(const GpuSpec named, read_gpu(map));
  if (named.key != gpu.key)
    return wrong(path, cat("profile ", path.scalar, " was measured on ", gpu.key, ", and gpu is ",
                           named.key, "; remove one of the two keys"));
  return gpu;
}

Result<Node> read_node(const YamlNode& map, const ProfiledGpu& profiled) {
  Node node;
  if (const YamlNode* profile = map.find("profile"); profile != nullptr) {
    BRAID_ASSIGN(node.gpu, read_profiled_gpu(map, *profile, profiled));
    node.profile = profile->scalar;
  } else {
    BRAID_ASSIGN(node.gpu, read_gpu(map));
  }
  BRAID_ASSIGN(node.devices,
               yaml_count(map, "gpus_per_node", node.gpu.gpus_per_node, kMaxDevicesPerNode));
  BRAID_ASSIGN(node.nic_gbps_per_gpu, yaml_speed(map, kNic, node.gpu.nic_gbps_per_gpu));
  BRAID_ASSIGN(node.gpu.nvlink_gbytes_per_s,
               yaml_speed(map, kNvlink, node.gpu.nvlink_gbytes_per_s));
  if (map.find("nvlink_gbytes_per_s") != nullptr)  // at least a bridge between two cards
    node.gpu.nvlink_domain_gpus = std::max(node.gpu.nvlink_domain_gpus, std::min(2, node.devices));
  BRAID_ASSIGN(node.gpu.pcie_gbytes_per_s, yaml_speed(map, kPcie, node.gpu.pcie_gbytes_per_s));
  BRAID_ASSIGN(const double gib, yaml_speed(map, kHbm, node.gpu.hbm_bytes / kGib));
  node.gpu.hbm_bytes = gib * kGib;
  return node;
}

constexpr int kMaxNodes = 100000;

// Appends `count` copies of a node, with their own NVLink domains where a domain spans nodes.
Status append_nodes(const Node& node, int count, Cluster* cluster, int* next_domain) {
  if (cluster->nodes.size() + count > kMaxNodes)
    return invalid_input(cat("a cluster may have at most ", kMaxNodes, " nodes"));
  BRAID_ASSIGN(Cluster part, make_cluster(node.gpu, count, node.devices, node.nic_gbps_per_gpu));
  int last = -1;
  for (Node& added : part.nodes) {
    added.profile = node.profile;
    last = std::max(last, added.nvlink_domain);
    if (added.nvlink_domain >= 0) added.nvlink_domain += *next_domain;
    cluster->nodes.push_back(added);
  }
  *next_domain += last + 1;
  return ok_status();
}

const std::vector<std::string>& node_keys() {
  static const std::vector<std::string> keys = {
      "gpu",     "gpus_per_node", "nic_gbps_per_gpu", "nvlink_gbytes_per_s", "pcie_gbytes_per_s",
      "hbm_gib", "profile"};
  return keys;
}

// Devices of one kind have one price.
Status check_profiles(const Cluster& cluster) {
  for (const Node& node : cluster.nodes)
    for (const Node& other : cluster.nodes)
      if (node.gpu.key == other.gpu.key && node.profile != other.profile)
        return invalid_input(
            cat("nodes of one device (", node.gpu.key, ") must have the same profile or none"));
  return ok_status();
}

Result<Cluster> read_node_list(const YamlNode& list, const ProfiledGpu& profiled) {
  Cluster cluster;
  int next_domain = 0;
  std::vector<std::string> keys = node_keys();
  keys.push_back("count");
  for (const YamlNode& item : list.list) {
    if (item.kind != YamlNode::Kind::kMap)
      return wrong(item, "each entry of nodes must be a map with the key 'gpu'");
    BRAID_TRY(check_keys(item, keys));
    BRAID_ASSIGN(const Node node, read_node(item, profiled));
    BRAID_ASSIGN(const int count, yaml_count(item, "count", 1, kMaxNodes));
    BRAID_TRY(append_nodes(node, count, &cluster, &next_domain).at(item.origin));
  }
  if (cluster.nodes.empty())
    return wrong(list, "nodes is empty; a cluster needs at least one node");
  BRAID_TRY(check_profiles(cluster).at(list.origin));
  return cluster;
}

}  // namespace

Result<Cluster> cluster_from_yaml(const YamlNode& node, const ProfiledGpu& profiled) {
  if (node.kind != YamlNode::Kind::kMap)
    return wrong(node, "a cluster must be a map with 'gpu' and 'nodes'");
  const YamlNode* nodes = node.find("nodes");
  if (nodes != nullptr && nodes->kind == YamlNode::Kind::kList) {
    BRAID_TRY(check_keys(node, {"nodes"}));
    return read_node_list(*nodes, profiled);
  }
  std::vector<std::string> keys = node_keys();
  keys.push_back("nodes");
  BRAID_TRY(check_keys(node, keys));
  BRAID_ASSIGN(const Node each, read_node(node, profiled));
  BRAID_ASSIGN(const int count, yaml_count(node, "nodes", 1, kMaxNodes));
  Cluster cluster;
  int next_domain = 0;
  BRAID_TRY(append_nodes(each, count, &cluster, &next_domain).at(node.origin));
  return cluster;
}

Result<Cluster> parse_cluster(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  if (const YamlNode* inner = root.find("cluster"); inner != nullptr)
    return cluster_from_yaml(*inner);
  return cluster_from_yaml(root).at(where);
}

Json cluster_json(const Cluster& cluster) {
  Json nodes = Json::array();
  for (const Node& node : cluster.nodes) {
    nodes.push_back({{"gpu", gpu_json(node.gpu)},
                     {"devices", node.devices},
                     {"nic_gbps_per_gpu", node.nic_gbps_per_gpu},
                     {"nvlink_domain", node.nvlink_domain}});
    if (!node.profile.empty()) nodes.back()["profile"] = node.profile;
  }
  return {{"nodes", nodes}};
}

Result<Cluster> cluster_from_json(const Json& json) {
  BRAID_ASSIGN(const Json nodes, json_field<Json>(json, "nodes"));
  if (!nodes.is_array() || nodes.empty())
    return invalid_input("'nodes' must be a list of at least one node");
  Cluster cluster;
  for (const Json& item : nodes) {
    Node node;
    BRAID_ASSIGN(const Json gpu, json_field<Json>(item, "gpu"));
    BRAID_ASSIGN(node.gpu, gpu_from_json(gpu));
    BRAID_ASSIGN(node.devices, json_field<int>(item, "devices"));
    BRAID_ASSIGN(node.nic_gbps_per_gpu, json_field<double>(item, "nic_gbps_per_gpu"));
    BRAID_ASSIGN(node.nvlink_domain, json_field_or<int>(item, "nvlink_domain", -1));
    BRAID_ASSIGN(node.profile, json_field_or<std::string>(item, "profile", ""));
    if (node.devices < 1 || node.devices > kMaxDevicesPerNode)
      return invalid_input(cat("devices must be 1 to ", kMaxDevicesPerNode, ", is ", node.devices));
    cluster.nodes.push_back(node);
  }
  return cluster;
}

Json mesh_json(const DeviceMesh& mesh) {
  Json devices = Json::array();
  for (const DeviceId device : mesh.devices) devices.push_back(device.value);
  return devices;
}

Result<DeviceMesh> mesh_from_json(const Json& json) {
  if (!json.is_array() || json.empty())
    return invalid_input("a device mesh must be a list of device numbers");
  DeviceMesh mesh;
  for (const Json& item : json) {
    if (!item.is_number_integer())
      return invalid_input(cat("device '", item.dump(), "' is not a number"));
    mesh.devices.push_back(DeviceId{item.get<int32_t>()});
  }
  return mesh;
}

}  // namespace braid::inline cluster

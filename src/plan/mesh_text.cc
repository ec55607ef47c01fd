// Device meshes as people write them.
#include "base/number_runs.h"
#include "base/text.h"
#include "base/yaml_check.h"
#include "plan/plan_fields.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

constexpr const char* kForms =
    "write devices as 0-7, \"0,2,4\", 0-28/4 (each fourth), node 1, nodes 0-3, \"node 1: 0-3\" or "
    "all";

Status malformed(const std::string& text, const std::string& why) {
  return invalid_input(cat("'", text, "' is no device mesh: ", why, "; ", kForms));
}

Result<NumberRun> parse_range(std::string_view text, const std::string& whole) {
  const std::string part(trim(text));
  const auto run = parse_number_run(part);
  if (!run || run->first < 0) return malformed(whole, cat("'", part, "' is no number or range"));
  if (run->count() == 0 || run->last >= plan_fields::kMaxDevices)
    return malformed(whole, cat("'", part, "' is empty or too large"));
  return *run;
}

// "0-3,8" with each number moved by `offset` and below `limit`.
Result<DeviceMesh> parse_devices(const std::string& text, int offset, int64_t limit,
                                 const std::string& whole) {
  DeviceMesh mesh;
  for (const std::string& part : split(text, ',')) {
    BRAID_ASSIGN(const NumberRun range, parse_range(part, whole));
    if (range.last >= limit)
      return malformed(whole, cat("number ", range.last, " is outside 0-", limit - 1));
    if (std::ssize(mesh.devices) + range.count() > plan_fields::kMaxDevices)
      return malformed(whole, "too many devices");
    for (int64_t i = range.first; i <= range.last; i += range.stride)
      mesh.devices.push_back(DeviceId{static_cast<int32_t>(offset + i)});
  }
  return mesh;
}

int first_of_node(const Cluster& cluster, int64_t node) {
  int first = 0;
  for (int64_t i = 0; i < node; ++i) first += cluster.nodes[static_cast<size_t>(i)].devices;
  return first;
}

Result<DeviceMesh> parse_nodes(const std::string& body, const Cluster& cluster,
                               const std::string& whole) {
  const size_t colon = body.find(':');
  BRAID_ASSIGN(const NumberRun nodes, parse_range(body.substr(0, colon), whole));
  const int64_t count = static_cast<int64_t>(cluster.nodes.size());
  if (nodes.last >= count) return malformed(whole, cat("the cluster has nodes 0-", count - 1));
  if (nodes.stride != 1) return malformed(whole, "nodes are a range without gaps");
  const int first = first_of_node(cluster, nodes.first);
  if (colon == std::string::npos)
    return contiguous_mesh(cluster, first, first_of_node(cluster, nodes.last + 1) - first);
  if (nodes.first != nodes.last) return malformed(whole, "devices are counted inside one node");
  const int inside = cluster.nodes[static_cast<size_t>(nodes.first)].devices;
  return parse_devices(body.substr(colon + 1), first, inside, whole);
}

}  // namespace

Result<DeviceMesh> parse_mesh(const std::string& text, const Cluster* cluster) {
  const std::string body(trim(text));
  const bool named = body == "all" || body.rfind("node", 0) == 0;
  if (named && cluster == nullptr)
    return malformed(text,
                     "the plan does not say its nodes; write devices: 8x8 (nodes x devices) in it");
  if (body == "all") return whole_cluster(*cluster);
  if (body.rfind("nodes ", 0) == 0) return parse_nodes(body.substr(6), *cluster, text);
  if (body.rfind("node ", 0) == 0) return parse_nodes(body.substr(5), *cluster, text);
  return parse_devices(body, 0, plan_fields::kMaxDevices, text);
}

Result<DeviceMesh> read_mesh(const YamlNode& node, const std::string& key, const Cluster* cluster,
                             int devices) {
  const auto text = plan_fields::items_text(node);
  if (!text) return wrong_value(node, cat(key, " is no device mesh; ", kForms, ", or a list"));
  if (trim(*text) == "all" && cluster == nullptr && devices > 0) {
    DeviceMesh mesh;
    for (int i = 0; i < devices; ++i) mesh.devices.push_back(DeviceId{i});
    return mesh;
  }
  return parse_mesh(*text, cluster).at(cat(node.origin, ": ", key));
}

std::string mesh_text(const DeviceMesh& mesh) {
  std::vector<int64_t> devices;
  for (const DeviceId device : mesh.devices) devices.push_back(device.value);
  return number_runs(devices);
}

}  // namespace braid::inline plan

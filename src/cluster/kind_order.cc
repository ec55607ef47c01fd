#include "cluster/kind_order.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"

namespace braid::inline cluster {

Cluster in_kind_order(Cluster cluster) {
  const auto key = [](const Node& node) {
    Cluster alone{{node}};
    alone.nodes.front().nvlink_domain = -1;
    return std::make_pair(-node.gpu.bf16_tflops, cluster_json(alone).dump());
  };
  std::stable_sort(cluster.nodes.begin(), cluster.nodes.end(),
                   [&](const Node& a, const Node& b) { return key(a) < key(b); });
  std::map<int, int> domains;  // numbered anew, in this order
  for (Node& node : cluster.nodes)
    if (node.nvlink_domain >= 0)
      node.nvlink_domain =
          domains.emplace(node.nvlink_domain, static_cast<int>(domains.size())).first->second;
  return cluster;
}

std::string device_numbers_text(const Cluster& cluster) {
  std::string out;
  int first = 0;
  for (size_t n = 0; n < cluster.nodes.size();) {
    const std::string& kind = cluster.nodes[n].gpu.key;
    int end = first;
    for (; n < cluster.nodes.size() && cluster.nodes[n].gpu.key == kind; ++n)
      end += cluster.nodes[n].devices;
    out += cat(out.empty() ? "devices " : ", ", first, "-", end - 1, ": ", kind);
    first = end;
  }
  return out;
}

}  // namespace braid::inline cluster

#include "plan/divide.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <set>

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Cluster nodes_of(const std::string& gpu, int nodes, int devices) {
  return *make_cluster(*find_gpu(gpu), nodes, devices);
}

std::vector<ClusterPart> shares_of(const std::vector<double>& shares) {
  std::vector<ClusterPart> parts;
  for (const double share : shares) parts.push_back({share, 1});
  return parts;
}

std::vector<std::string> texts(const Result<std::vector<DeviceMesh>>& meshes) {
  if (!meshes.ok()) return {meshes.status().message()};
  std::vector<std::string> out;
  for (const DeviceMesh& mesh : *meshes) out.push_back(mesh_text(mesh));
  return out;
}

std::vector<int> sizes(const Cluster& cluster, const std::vector<double>& shares) {
  std::vector<int> out;
  for (const DeviceMesh& mesh : *divide_cluster(cluster, shares_of(shares)))
    out.push_back(static_cast<int>(mesh.devices.size()));
  return out;
}

// What a division costs, written down again: the longest time, whole domains that parts share, and
// how uneven it is.
struct DivisionCost {
  double longest = 0;
  int straddles = 0;
  double uneven = 0;
};

DivisionCost cost_of(const Cluster& cluster, const std::vector<ClusterPart>& parts,
                     const std::vector<DeviceMesh>& meshes) {
  DivisionCost cost;
  for (size_t i = 0; i < parts.size(); ++i) {
    double speed = 0;
    std::set<int> nodes;
    std::set<NvlinkDomain> domains;
    for (const DeviceId device : meshes[i].devices) {
      speed += gpu_of(cluster, device).bf16_tflops;
      nodes.insert(node_of(cluster, device));
      domains.insert(nvlink_domain_of(cluster, device));
    }
    const double time = parts[i].share / speed;
    cost.longest = std::max(cost.longest, time);
    cost.uneven += time * time;
    bool cuts_node = false, cuts_domain = false;
    for (int d = 0; d < device_count(cluster); ++d) {
      if (std::count(meshes[i].devices.begin(), meshes[i].devices.end(), DeviceId{d}) > 0) continue;
      cuts_node |= nodes.size() > 1 && nodes.count(node_of(cluster, DeviceId{d})) > 0;
      cuts_domain |=
          domains.size() > 1 && domains.count(nvlink_domain_of(cluster, DeviceId{d})) > 0;
    }
    cost.straddles += int{cuts_node} + int{cuts_domain};
  }
  return cost;
}

// Every division into runs: orders of the parts, and sizes.
void each_division(const std::vector<ClusterPart>& parts, int devices,
                   const std::function<void(const std::vector<DeviceMesh>&)>& visit) {
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<DeviceMesh> meshes(parts.size());
  const std::function<void(size_t, int)> place = [&](size_t at, int first) {
    if (at == order.size()) {
      if (first == devices) visit(meshes);
      return;
    }
    DeviceMesh& mesh = meshes[order[at]];
    mesh.devices.clear();
    for (int d = first; d < devices; ++d) {
      mesh.devices.push_back(DeviceId{d});
      if (static_cast<int64_t>(mesh.devices.size()) % parts[order[at]].unit == 0) {
        const DeviceMesh kept = mesh;
        place(at + 1, d + 1);
        mesh = kept;
      }
    }
  };
  do place(0, 0);
  while (std::next_permutation(order.begin(), order.end()));
}

void expect_best(const Cluster& cluster, const std::vector<ClusterPart>& parts) {
  const int devices = device_count(cluster);
  double least = INFINITY;
  each_division(parts, devices, [&](const auto& meshes) {
    least = std::min(least, cost_of(cluster, parts, meshes).longest);
  });
  const auto found = divide_cluster(cluster, parts);
  ASSERT_EQ(found.ok(), std::isfinite(least)) << found.status().message();
  if (!found.ok()) return;
  std::vector<int> uses(devices);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(static_cast<int64_t>((*found)[i].devices.size()) % parts[i].unit, 0);
    for (const DeviceId device : (*found)[i].devices) ++uses.at(device.value);
  }
  EXPECT_THAT(uses, testing::Each(1));
  const double limit = least * (1 + kStatedSlack) * (1 + 1e-9);
  const DivisionCost mine = cost_of(cluster, parts, *found);
  EXPECT_LE(mine.longest, limit);
  each_division(parts, devices, [&](const auto& meshes) {
    const DivisionCost other = cost_of(cluster, parts, meshes);
    if (other.longest > limit) return;
    EXPECT_LE(mine.straddles, other.straddles);
    if (mine.straddles == other.straddles) {
      EXPECT_LE(mine.uneven, other.uneven + 1e-5 * limit * limit);
    }
  });
}

TEST(Divide, IsTheBestOfAllDivisions) {
  const std::vector<std::vector<double>> ratios = {
      {1, 1}, {3, 1}, {100, 1}, {7, 5}, {1, 6, 1}, {1, .5, .25}, {.3, .3, .4}, {.4, .4, .1, .1}};
  std::vector<Cluster> clusters;
  for (const int devices : {4, 5, 6, 7, 8, 10})
    clusters.push_back(nodes_of("a100-80g", 1, devices));
  clusters.push_back(nodes_of("a100-80g", 2, 4));
  clusters.push_back(nodes_of("a100-80g", 3, 3));
  clusters.push_back(nodes_of("l40s", 2, 4));
  Cluster mixed = nodes_of("h100-80g", 1, 4);
  mixed.nodes.push_back(nodes_of("a100-80g", 1, 4).nodes.front());
  clusters.push_back(mixed);
  for (const Cluster& cluster : clusters)
    for (const auto& shares : ratios) {
      SCOPED_TRACE(testing::Message()
                   << device_count(cluster) << " devices of " << cluster.nodes.size() << " nodes, "
                   << testing::PrintToString(shares));
      expect_best(cluster, shares_of(shares));
    }
  for (const int devices : {8, 9, 16})
    for (const auto& [a, b] : {std::pair(2, 1), {2, 2}, {4, 2}, {3, 5}, {8, 8}, {4, 16}}) {
      SCOPED_TRACE(testing::Message() << devices << " devices in " << a << " and " << b);
      expect_best(nodes_of("a100-80g", 1, devices), {{3, a}, {2, b}});
    }
}

// What the published solver makes of these shares overlaps or leaves devices idle (APP's code:
// actor 0-3, critic 4-7, reference 2, reward 3 of ten devices; the last two of eight idle; three of
// four parts on the same devices).
TEST(Divide, SolvesWhatThePublishedSolverDoesNot) {
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 10), {.4, .4, .1, .1}), (std::vector<int>{4, 4, 1, 1}));
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 8), {.5, .25, .25}), (std::vector<int>{4, 2, 2}));
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 8), {.5, .5, .5, .5}), (std::vector<int>{2, 2, 2, 2}));
}

TEST(Divide, EveryDeviceWorksHoweverUnequalTheShares) {
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 8), {100, 1}), (std::vector<int>{7, 1}));
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 6), {1, 1}), (std::vector<int>{3, 3}));
  EXPECT_EQ(sizes(nodes_of("a100-80g", 1, 5), {1, 1}), (std::vector<int>{3, 2}));
}

TEST(Divide, KeepsNodesWholeWhereThatCostsLittle) {
  EXPECT_THAT(texts(divide_cluster(nodes_of("a100-80g", 4, 8), shares_of({31, 32}))),
              ElementsAre("0-15", "16-31"));
  // The part that spans nodes has them alone, so it comes second although it is written first.
  EXPECT_THAT(
      texts(divide_cluster(nodes_of("a100-80g", 2, 8), shares_of({1, 2, 1}))),
      testing::AnyOf(ElementsAre("8-11", "0-7", "12-15"), ElementsAre("0-3", "8-15", "4-7")));
  const auto apart = divide_cluster(nodes_of("a100-80g", 2, 8), shares_of({9, 7}));
  EXPECT_THAT(texts(apart), ElementsAre("0-8", "9-15"));
  EXPECT_THAT(texts(divide_cluster(nodes_of("a100-80g", 2, 8), shares_of({9, 7}), kEstimateSlack)),
              ElementsAre("0-7", "8-15"));
}

// An H100 does as much as 3.2 A100.
TEST(Divide, CountsTheSpeedOfDevices) {
  Cluster mixed = nodes_of("h100-80g", 1, 8);
  mixed.nodes.push_back(nodes_of("a100-80g", 1, 8).nodes.front());
  EXPECT_THAT(texts(divide_cluster(mixed, shares_of({3.17, 1}))), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(texts(divide_cluster(mixed, shares_of({1, 3.17}))), ElementsAre("8-15", "0-7"));
}

TEST(Divide, LargeClustersAreDividedAtNodes) {
  const auto halves = *divide_cluster(nodes_of("h100-80g", 1000, 8), shares_of({3, 2, 1}));
  size_t devices = 0;
  for (const DeviceMesh& mesh : halves) devices += mesh.devices.size();
  EXPECT_EQ(devices, 8000u);
  EXPECT_NEAR(static_cast<double>(halves[0].devices.size()), 4000, 200);
}

TEST(Divide, SaysWhatWouldGo) {
  const Cluster eight = nodes_of("a100-80g", 1, 8), one = nodes_of("this-machine", 1, 1);
  EXPECT_THAT(divide_cluster(eight, shares_of(std::vector<double>(9, 1))).status().message(),
              HasSubstr("9 disjoint parts need at least 9 devices, the cluster has 8"));
  EXPECT_THAT(divide_cluster(one, shares_of({1, 1})).status().message(),
              HasSubstr("write cluster={nodes: 1, gpus_per_node: 2}"));
  EXPECT_THAT(divide_cluster(nodes_of("a100-80g", 1, 5), {{1, 2}, {1, 2}}).status().message(),
              HasSubstr("multiples of 2, 2 devices (the sizes that parallel says) cannot cover the "
                        "5 devices of the cluster; nearest numbers of devices: 4 and 6"));
  EXPECT_THAT(divide_cluster(nodes_of("a100-80g", 1, 4), {{1, 4}, {1, 2}}).status().message(),
              HasSubstr("nearest numbers of devices: 6"));
}

}  // namespace
}  // namespace braid::inline plan

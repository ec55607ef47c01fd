#include "cluster/mesh_shape.h"

#include <gtest/gtest.h>

namespace braid::inline cluster {
namespace {

MeshShape whole(const char* yaml) {
  const Cluster cluster = *parse_cluster(yaml, "c.yaml");
  return shape_of(cluster, whole_cluster(cluster));
}

TEST(MeshShape, TheSlowestNetworkCountsWhereverItsNodeIs) {
  EXPECT_EQ(whole("nodes: [{gpu: h100-80g, nic_gbps_per_gpu: 400}, "
                  "{gpu: h100-80g, nic_gbps_per_gpu: 10}]")
                .nic_gbps_per_gpu,
            10);
  EXPECT_EQ(whole("nodes: [{gpu: h100-80g, nic_gbps_per_gpu: 10}, "
                  "{gpu: l40s, nic_gbps_per_gpu: 400}]")
                .nic_gbps_per_gpu,
            10);
}

TEST(MeshShape, KindsAndLinksOfNodesThatDiffer) {
  const MeshShape shape = whole(
      "nodes: [{gpu: h20, gpus_per_node: 2}, {gpu: a100-80g, gpus_per_node: 2}, "
      "{gpu: h20, gpus_per_node: 2}]");
  ASSERT_EQ(shape.kinds.size(), 2U);
  EXPECT_EQ(shape.smallest().key, "a100-80g");
  EXPECT_EQ(shape.kinds[1].key, "h20");
  EXPECT_EQ(shape.devices, 6);
  EXPECT_EQ(shape.per_node, 2);
  EXPECT_EQ(shape.links.nvlink_domain_gpus, 2);
  EXPECT_EQ(shape.links.nvlink_gbytes_per_s, find_gpu("a100-80g")->nvlink_gbytes_per_s);
  EXPECT_EQ(shape.links.pcie_gbytes_per_s, find_gpu("a100-80g")->pcie_gbytes_per_s);
}

TEST(MeshShape, DevicesOfOneNvlinkDomain) {
  const auto domain = [](const char* gpu, int nodes, int each, std::vector<DeviceId> devices) {
    const Cluster cluster = *make_cluster(*find_gpu(gpu), nodes, each);
    return shape_of(cluster, {std::move(devices)}).links.nvlink_domain_gpus;
  };
  EXPECT_EQ(domain("a100-80g", 1, 8, {{0}, {1}, {2}, {3}}), 4);
  EXPECT_EQ(domain("h100-pcie", 1, 4, {{0}, {1}}), 2);
  EXPECT_EQ(domain("h100-pcie", 1, 4, {{1}, {2}}), 1);  // of two bridges
  EXPECT_EQ(domain("gb200", 19, 4, {{68}, {69}, {70}, {71}}), 4);
  EXPECT_EQ(domain("gb200", 19, 4, {{70}, {71}, {72}, {73}}), 2);  // of two racks
}

}  // namespace
}  // namespace braid::inline cluster

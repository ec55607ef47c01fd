// Collectives calculated by hand.
#include "pricing/collective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pricing/test_cases.h"

namespace braid::inline pricing {
namespace {

// 8 GB over links of 100 GB/s and network of 10 GB/s per device

double all_reduce_s(const CollectiveGroup& group, const Efficiency& e) {
  return collective_s(CollectiveOp::kAllReduce, 8e9, group, e);
}

TEST(Collective, RingInsideANode) {
  const CollectiveGroup group = make_group(toy_gpu(), 8, 1, 8, 0);
  const Efficiency e = ideal_efficiency();
  EXPECT_DOUBLE_EQ(all_reduce_s(group, e), 8e9 * 2 * 7 / 8 / 100e9);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kAllGather, 8e9, group, e), 8e9 * 7 / 8 / 100e9);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kReduceScatter, 8e9, group, e), 8e9 * 7 / 8 / 100e9);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kBroadcast, 8e9, group, e), 8e9 / 100e9);
  EXPECT_EQ(collective_s(CollectiveOp::kAllReduce, 8e9, make_group(toy_gpu(), 1, 1, 8, 0), e), 0);
}

TEST(Collective, LatencyAndPipelineFill) {
  const CollectiveGroup group = make_group(toy_gpu(), 8, 1, 8, 0);
  Efficiency e = ideal_efficiency();
  e.nvlink_latency_us = 10;
  e.pipeline_fill = 2;
  EXPECT_DOUBLE_EQ(all_reduce_s(group, e), 1e-5 + 0.14 + 2 * std::sqrt(1e-5 * 0.14));
  e.network_latency_us = 50;
  e.pipeline_fill = 0;
  const CollectiveGroup nodes = make_group(toy_gpu(), 16, 1, 8, 0);
  EXPECT_DOUBLE_EQ(all_reduce_s(nodes, e), 6e-5 + 8e9 * 2 * 15 / 16 / 80e9);
}

TEST(Collective, RingOverNodesIsBoundByTheNicsOfANode) {
  const Efficiency e = ideal_efficiency();
  // Tensor-parallel neighbours in between leave each group one NIC per node.
  const CollectiveGroup strided = make_group(toy_gpu(), 16, 8, 8, 0);
  EXPECT_EQ(strided.per_domain, 1);
  EXPECT_DOUBLE_EQ(all_reduce_s(strided, e), 8e9 * 2 * 15 / 16 / 10e9);
  // A stated network replaces the device's.
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(toy_gpu(), 16, 8, 8, 160), e), 8e9 * 2 * 15 / 16 / 20e9);
}

TEST(Collective, AllToAllSendsEachShareDirectly) {
  const Efficiency e = ideal_efficiency();
  const CollectiveGroup near = make_group(toy_gpu(), 8, 1, 8, 0);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kAllToAll, 8e9, near, e), 8e9 * 7 / 8 / 100e9);
  const CollectiveGroup far = make_group(toy_gpu(), 16, 1, 8, 0);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kAllToAll, 8e9, far, e), 8e9 * 8 / 16 / 10e9);
}

TEST(Collective, SwitchReducesAboveFourHopperDevices) {
  GpuSpec gpu = toy_gpu();
  gpu.architecture = "hopper";
  Efficiency e = ideal_efficiency();
  e.nvls_share = 0.5;
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 8, 1, 8, 0), e), 8e9 / 50e9);
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 4, 1, 8, 0), e), 8e9 * 2 * 3 / 4 / 100e9);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveOp::kAllReduce, 8e9, make_group(gpu, 8, 1, 8, 0), e,
                                CollectiveAlgorithm::kRing),
                   8e9 * 2 * 7 / 8 / 100e9);
}

TEST(Collective, WithoutNvlinkTheHostLinkCarriesAll) {
  GpuSpec gpu = toy_gpu();
  gpu.nvlink_gbytes_per_s = 0;
  gpu.nvlink_domain_gpus = 1;
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 8, 1, 8, 0), ideal_efficiency()),
                   8e9 * 2 * 7 / 8 / 20e9);
}

TEST(Collective, NvlinkDomainOfARackSpansNodes) {
  const auto gpu = find_gpu("gb200");
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(make_group(*gpu, 64, 1, 4, 0).per_domain, 64);
  EXPECT_EQ(make_group(*gpu, 144, 1, 4, 0).per_domain, 72);
}

// The rule of links between devices (cluster/cluster.h) holds for groups of them.
TEST(Collective, CardsBeyondABridgeExchangeOverTheHostLink) {
  GpuSpec gpu = toy_gpu();
  gpu.nvlink_domain_gpus = 2;
  const Efficiency e = ideal_efficiency();
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 2, 1, 8, 0), e), 8e9 / 100e9);
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 4, 1, 8, 0), e), 8e9 * 2 * 3 / 4 / 20e9);
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 2, 2, 8, 0), e), 8e9 / 20e9);
  // 20 GB/s inside a node are less than the NICs of eight devices together.
  EXPECT_DOUBLE_EQ(all_reduce_s(make_group(gpu, 16, 1, 8, 0), e), 8e9 * 2 * 15 / 16 / 20e9);
}

TEST(Collective, GroupsLeaveTheirDomainWhereLinksDo) {
  for (const GpuSpec& gpu : gpu_catalogue())
    for (const int devices : {1, 2, 4, 8}) {
      const Cluster cluster = *make_cluster(gpu, 4, devices);
      for (int members = 2; members <= 2 * devices; members *= 2) {
        bool network = false, nvlink = true;
        for (int d = 1; d < members; ++d) {
          const LinkKind kind = link_between(cluster, DeviceId{0}, DeviceId{d}).kind;
          network |= kind == LinkKind::kNetwork;
          nvlink &= kind == LinkKind::kNvlink;
        }
        const CollectiveGroup group = make_group(gpu, members, 1, devices, 0);
        EXPECT_EQ(group.per_domain < members, network) << gpu.key << " " << members;
        if (!network) {
          EXPECT_EQ(group.nvlink, nvlink) << gpu.key << " " << members;
        }
      }
    }
}

TEST(Collective, MoreBytesNeverTakeLess) {
  const auto gpu = find_gpu("h100-80g");
  const Efficiency e =
      resolve_efficiency(committed_calibration(), efficiency_key(*gpu, Precision::kBf16, ""));
  for (const int members : {2, 4, 8, 16, 64}) {
    const CollectiveGroup group = make_group(*gpu, members, 1, 8, 0);
    for (const CollectiveOp op : {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
                                  CollectiveOp::kAllToAll, CollectiveOp::kBroadcast}) {
      double before = 0;
      for (double bytes = 1; bytes < 1e11; bytes *= 4) {
        const double seconds = collective_s(op, bytes, group, e);
        EXPECT_GT(seconds, before) << collective_name(op) << " " << members << " " << bytes;
        before = seconds;
      }
    }
  }
}

TEST(Collective, SendTakesTheLinkBetweenTheTwo) {
  Efficiency e = ideal_efficiency();
  e.nvlink_latency_us = 10;
  e.network_latency_us = 50;
  const CollectiveGroup group = make_group(toy_gpu(), 2, 1, 8, 0);
  EXPECT_DOUBLE_EQ(send_s(1e9, true, group, e), 1e-5 + 0.01);
  EXPECT_DOUBLE_EQ(send_s(1e9, false, group, e), 5e-5 + 0.1);
}

}  // namespace
}  // namespace braid::inline pricing

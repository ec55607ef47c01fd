#include "cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/text.h"

namespace braid::inline cluster {
namespace {

using testing::HasSubstr;

Cluster cluster_of(const char* gpu, int nodes, int devices) {
  return *make_cluster(*find_gpu(gpu), nodes, devices);
}

std::string mesh_of(const DeviceMesh& mesh) { return cat(mesh); }

TEST(Cluster, DevicesAreNumberedNodeByNode) {
  const Cluster cluster = *parse_cluster(
      "nodes:\n- {gpu: h100-80g, gpus_per_node: 8, count: 2}\n- {gpu: l40s, gpus_per_node: 4}\n",
      "c.yaml");
  EXPECT_EQ(device_count(cluster), 20);
  EXPECT_EQ(node_of(cluster, DeviceId{7}), 0);
  EXPECT_EQ(node_of(cluster, DeviceId{8}), 1);
  EXPECT_EQ(node_of(cluster, DeviceId{19}), 2);
  EXPECT_EQ(gpu_of(cluster, DeviceId{15}).key, "h100-80g");
  EXPECT_EQ(gpu_of(cluster, DeviceId{16}).key, "l40s");
}

TEST(Cluster, LinksFollowTheTopology) {
  const Cluster cluster = cluster_of("a100-80g", 2, 8);
  EXPECT_EQ(link_between(cluster, DeviceId{0}, DeviceId{0}).kind, LinkKind::kSame);
  EXPECT_EQ(link_between(cluster, DeviceId{0}, DeviceId{7}),
            (Link{LinkKind::kNvlink, find_gpu("a100-80g")->nvlink_gbytes_per_s}));
  const Link network = link_between(cluster, DeviceId{7}, DeviceId{8});
  EXPECT_EQ(network.kind, LinkKind::kNetwork);
  EXPECT_DOUBLE_EQ(network.gbytes_per_s, find_gpu("a100-80g")->nic_gbps_per_gpu / 8);
  const Cluster no_nvlink = cluster_of("l40s", 1, 4);
  EXPECT_EQ(link_between(no_nvlink, DeviceId{0}, DeviceId{3}).kind, LinkKind::kPcie);
}

TEST(Cluster, TheSlowerNodeLimitsANetworkLink) {
  const Cluster cluster = *parse_cluster(
      "nodes:\n- {gpu: h100-80g, nic_gbps_per_gpu: 400}\n- {gpu: l40s, nic_gbps_per_gpu: 100}\n",
      "c.yaml");
  EXPECT_DOUBLE_EQ(link_between(cluster, DeviceId{0}, DeviceId{8}).gbytes_per_s, 12.5);
}

TEST(Cluster, RacksShareOneNvlinkDomainOverNodes) {
  const Cluster cluster = cluster_of("gb200", 20, 4);  // 72 devices a domain: 18 nodes
  EXPECT_EQ(link_between(cluster_of("gb200", 19, 4), DeviceId{71}, DeviceId{72}).kind,
            LinkKind::kNetwork);
  EXPECT_EQ(link_between(cluster, DeviceId{0}, DeviceId{71}).kind, LinkKind::kNvlink);
  EXPECT_EQ(link_between(cluster, DeviceId{0}, DeviceId{72}).kind, LinkKind::kNetwork);
  EXPECT_EQ(link_between(cluster, DeviceId{72}, DeviceId{79}).kind, LinkKind::kNvlink);
}

TEST(Cluster, BridgedCardsReachOnlyTheirPartner) {
  const Cluster cluster = cluster_of("h100-pcie", 1, 4);  // bridges join two cards
  EXPECT_EQ(link_between(cluster, DeviceId{0}, DeviceId{1}).kind, LinkKind::kNvlink);
  EXPECT_EQ(link_between(cluster, DeviceId{1}, DeviceId{2}).kind, LinkKind::kPcie);
}

// Half-filled nodes are still joined by the network alone.
TEST(Cluster, NodesWithFewerDevicesThanTheProductKeepTheirOwnDomain) {
  const auto kind = [](const Cluster& cluster, int from, int to) {
    return link_between(cluster, DeviceId{from}, DeviceId{to}).kind;
  };
  const Cluster four = cluster_of("a100-80g", 2, 4), two = cluster_of("h100-80g", 4, 2);
  EXPECT_EQ(kind(four, 0, 3), LinkKind::kNvlink);
  EXPECT_EQ(kind(four, 3, 4), LinkKind::kNetwork);
  EXPECT_EQ(kind(two, 0, 1), LinkKind::kNvlink);
  EXPECT_EQ(kind(two, 1, 2), LinkKind::kNetwork);
  EXPECT_EQ(kind(two, 0, 7), LinkKind::kNetwork);
  EXPECT_EQ(kind(cluster_of("a100-pcie", 2, 1), 0, 1),
            LinkKind::kNetwork);  // no bridge leaves a node
}

TEST(Cluster, NvlinkDomainsByProductAndNode) {
  const auto domain = [](const char* gpu, int devices) {
    return nvlink_domain_devices(*find_gpu(gpu), devices);
  };
  EXPECT_EQ(domain("a100-80g", 8), 8);
  EXPECT_EQ(domain("a100-80g", 4), 4);
  EXPECT_EQ(domain("a100-80g", 16), 8);
  EXPECT_EQ(domain("h100-pcie", 8), 2);
  EXPECT_EQ(domain("h100-pcie", 1), 1);
  EXPECT_EQ(domain("l40s", 8), 1);
  EXPECT_EQ(domain("gb200", 4), 72);
  EXPECT_EQ(domain("gb200", 16), 64);  // whole nodes
}

TEST(Cluster, AStatedNvlinkRateIsABridgeWhereTheCatalogueHasNone) {
  const auto link = [](const std::string& rate, int to) {
    const std::string text = "{gpu: a40, gpus_per_node: 4" + rate + "}";
    return link_between(*parse_cluster(text, "c.yaml"), DeviceId{0}, DeviceId{to});
  };
  EXPECT_EQ(link("", 1).kind, LinkKind::kPcie);
  EXPECT_EQ(link(", nvlink_gbytes_per_s: 56", 1), (Link{LinkKind::kNvlink, 56}));
  EXPECT_EQ(link(", nvlink_gbytes_per_s: 112", 1), (Link{LinkKind::kNvlink, 112}));
  EXPECT_EQ(link(", nvlink_gbytes_per_s: 112", 2).kind, LinkKind::kPcie);
}

TEST(Cluster, AnyNodeSizeFromOneToSixteen) {
  for (int devices = 1; devices <= kMaxDevicesPerNode; ++devices)
    EXPECT_EQ(device_count(cluster_of("a100-80g", 3, devices)), 3 * devices);
  EXPECT_THAT(make_cluster(*find_gpu("a100-80g"), 1, 17).status().message(), HasSubstr("1 to 16"));
  EXPECT_FALSE(make_cluster(*find_gpu("a100-80g"), 0, 8).ok());
}

TEST(Cluster, YamlMayOverrideCatalogueValues) {
  const Cluster cluster = *parse_cluster(
      "cluster: {gpu: a100-80g, nodes: 2, gpus_per_node: 4, hbm_gib: 40, nvlink_gbytes_per_s: 100}",
      "c.yaml");
  EXPECT_EQ(device_count(cluster), 8);
  EXPECT_DOUBLE_EQ(gpu_of(cluster, DeviceId{0}).hbm_bytes, 40.0 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(link_between(cluster, DeviceId{0}, DeviceId{1}).gbytes_per_s, 100);
}

TEST(Cluster, NumbersThatNoDeviceHasAreRefused) {
  for (const char* bad : {"nvlink_gbytes_per_s: 1e-30", "nic_gbps_per_gpu: 1e30", "hbm_gib: 1e12",
                          "pcie_gbytes_per_s: nan", "hbm_gib: 0"}) {
    const auto cluster = parse_cluster(std::string("{gpu: a100-80g, ") + bad + "}", "c.yaml");
    const std::string key = std::string(bad).substr(0, std::string(bad).find(':'));
    EXPECT_THAT(cluster.status().message(), HasSubstr(key + " must be a number from ")) << bad;
  }
}

Result<Cluster> profiled_cluster(const std::string& text) {
  const auto gpu_of_profile = [](const std::string& path) -> Result<GpuSpec> {
    if (path != "p.json") return not_found(path + ": cannot open");
    GpuSpec gpu = *find_gpu("this-machine");
    gpu.hbm_bytes = 7e9;
    return gpu;
  };
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, "c.yaml"));
  return cluster_from_yaml(root, gpu_of_profile);
}

TEST(Cluster, AProfileTakesThePlaceOfTheCatalogue) {
  const auto cluster = profiled_cluster("{profile: p.json, nodes: 2, gpus_per_node: 4}");
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  ASSERT_EQ(cluster->nodes.size(), 2U);
  EXPECT_EQ(cluster->nodes[1].gpu.key, "this-machine");
  EXPECT_EQ(cluster->nodes[1].gpu.hbm_bytes, 7e9);
  EXPECT_EQ(cluster->nodes[1].profile, "p.json");
  EXPECT_EQ(*cluster_from_json(cluster_json(*cluster)), *cluster);
  EXPECT_TRUE(profiled_cluster("{profile: p.json, gpu: this-machine}").ok());
  const auto mixed = profiled_cluster("nodes: [{profile: p.json}, {gpu: l40s}]");
  EXPECT_EQ(mixed->nodes[0].profile, "p.json");
  EXPECT_EQ(mixed->nodes[1].profile, "");
}

TEST(Cluster, ProfilesThatCannotBeUsedAreErrors) {
  const auto failure = [](const std::string& text) {
    return profiled_cluster(text).status().message();
  };
  EXPECT_THAT(failure("{profile: p.json, gpu: a100-80g}"),
              HasSubstr("c.yaml:1: profile p.json was measured on this-machine, and gpu is "
                        "a100-80g; remove one of the two keys"));
  EXPECT_THAT(failure("{profile: q.json}"), HasSubstr("profile: q.json: cannot open"));
  EXPECT_THAT(failure("{profile: [p.json]}"), HasSubstr("profile must be the path of a file"));
  EXPECT_THAT(failure("nodes: [{profile: p.json}, {gpu: this-machine}]"),
              HasSubstr("must have the same profile or none"));
  EXPECT_THAT(parse_cluster("{profile: p.json}", "c.yaml").status().message(),
              HasSubstr("cannot be read here"));
}

TEST(Cluster, JsonReadsBackEqual) {
  for (const char* gpu : {"a100-80g", "gb200", "this-machine", "l40s"}) {
    const Cluster cluster = cluster_of(gpu, 3, 4);
    const auto again = cluster_from_json(*parse_json(cluster_json(cluster).dump(), "c"));
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, cluster);
  }
}

struct BadText {
  const char* text;
  const char* message;
};
class BadCluster : public testing::TestWithParam<BadText> {};
TEST_P(BadCluster, ErrorNamesPlaceAndRule) {
  const Status status = parse_cluster(GetParam().text, "c.yaml").status();
  EXPECT_EQ(exit_code(status.code()), 2);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    Cases, BadCluster,
    testing::Values(BadText{"nodes: 2", "missing key 'gpu'"},
                    BadText{"gpu: a100-81g", "(did you mean 'a100-80g'?)"},
                    BadText{"gpu: h1000", "(did you mean 'h100-80g', 'h100-96g' or 'h100-pcie'?)"},
                    BadText{"gpu: RTX4080", "(did you mean 'rtx4090'?)"},
                    BadText{"gpu: xl20", "(did you mean 'l20'?)"},
                    BadText{"gpu: a100-80g\nnodes: 0", "c.yaml:2"},
                    BadText{"gpu: a100-80g\nnodes: 1.5", "whole number from 1"},
                    BadText{"gpu: a100-80g\ngpus_per_node: 32", "from 1 to 16"},
                    BadText{"gpu: a100-80g\nhbm_gib: -4", "must be a number from 0.25"},
                    BadText{"gpu: a100-80g\nnic_gbps_per_gpu: nan", "from 0.1 to 100000, is 'nan'"},
                    BadText{"gpu: a100-80g\nnodez: 2", "did you mean 'nodes'"},
                    BadText{"nodes: []", "nodes is empty"}, BadText{"nodes: [a100-80g]", "a map"},
                    BadText{"nodes: [{gpu: a100-80g, nodes: 2}]", "unknown key 'nodes'"},
                    BadText{"gpu: [a]", "gpu must be a name"},
                    BadText{"nodes: [{gpu: a100-80g, count: 99999}, {gpu: l40s, count: 2}]",
                            "at most 100000 nodes"}));

TEST(Mesh, CandidatesAreDistinctLegalAndHaveAlignedParts) {
  for (const auto& [nodes, devices] : {std::pair(1, 1), {1, 8}, {2, 8}, {3, 4}, {2, 6}}) {
    const Cluster cluster = cluster_of("a100-80g", nodes, devices);
    std::set<std::string> seen;
    for (const DeviceMesh& mesh : candidate_meshes(cluster)) {
      EXPECT_TRUE(validate_mesh(cluster, mesh).ok());
      EXPECT_TRUE(seen.insert(mesh_of(mesh)).second) << mesh;
    }
    EXPECT_EQ(seen.count(mesh_of(whole_cluster(cluster))), 1u);
  }
}

// ReaL counts N(N+1)/2 runs of nodes and two halves of each; here quarters, pairs and single
// devices come in addition.
TEST(Mesh, CandidatesOfTwoNodesOfEight) {
  const auto meshes = candidate_meshes(cluster_of("a100-80g", 2, 8));
  EXPECT_EQ(meshes.size(), 2u * (8 + 4 + 2) + 3);
}

TEST(Mesh, OverlapAndSpan) {
  const Cluster cluster = cluster_of("a100-80g", 2, 4);
  const DeviceMesh left = *contiguous_mesh(cluster, 0, 4), middle = *contiguous_mesh(cluster, 2, 4),
                   right = *contiguous_mesh(cluster, 4, 4);
  EXPECT_TRUE(overlaps(left, middle));
  EXPECT_FALSE(overlaps(left, right));
  EXPECT_EQ(nodes_spanned(cluster, middle), 2);
  EXPECT_EQ(nodes_spanned(cluster, right), 1);
  EXPECT_FALSE(contiguous_mesh(cluster, 6, 3).ok());
  EXPECT_FALSE(contiguous_mesh(cluster, -1, 2).ok());
}

TEST(Mesh, JsonAndErrors) {
  const DeviceMesh mesh{{{3}, {1}, {2}}};
  EXPECT_EQ(*mesh_from_json(mesh_json(mesh)), mesh);
  EXPECT_EQ(mesh_of(mesh), "[3,1,2]");
  EXPECT_FALSE(mesh_from_json(Json::array()).ok());
  EXPECT_FALSE(mesh_from_json(*parse_json("[\"a\"]", "m")).ok());
  const Cluster cluster = cluster_of("a100-80g", 1, 4);
  EXPECT_THAT(validate_mesh(cluster, {{{0}, {4}}}).message(), HasSubstr("devices 0 to 3"));
  EXPECT_THAT(validate_mesh(cluster, {{{0}, {0}}}).message(), HasSubstr("is twice"));
  EXPECT_FALSE(validate_mesh(cluster, {}).ok());
}

TEST(Gpu, CatalogueEntriesArePlausibleAndReadBack) {
  for (const GpuSpec& gpu : gpu_catalogue()) {
    EXPECT_GT(gpu.bf16_tflops, 0) << gpu.key;
    EXPECT_GT(gpu.hbm_bytes, 1e9) << gpu.key;
    EXPECT_GT(gpu.hbm_gbytes_per_s, 0) << gpu.key;
    EXPECT_GE(gpu.nvlink_domain_gpus, 1) << gpu.key;
    EXPECT_EQ(*gpu_from_json(gpu_json(gpu)), gpu);
    EXPECT_EQ(*find_gpu(gpu.key), gpu);
  }
}

TEST(Gpu, IsFoundByWhatItsDriverCallsIt) {
  struct Told {
    const char* name;
    double mib;
    const char* key;  // "" = none
  };
  const Told told[] = {{"NVIDIA H100 80GB HBM3", 81559, "h100-80g"},
                       {"NVIDIA H100 PCIe", 81559, "h100-pcie"},
                       {"NVIDIA H200", 143771, "h200"},
                       {"NVIDIA H20", 97871, "h20"},
                       {"NVIDIA H800", 81559, "h800"},
                       {"NVIDIA A100-SXM4-80GB", 81920, "a100-80g"},
                       {"NVIDIA A100-SXM4-40GB", 40960, "a100-40g"},
                       {"NVIDIA A100 80GB PCIe", 81920, "a100-pcie"},
                       {"NVIDIA A100-PCIE-40GB", 40960, ""},
                       {"NVIDIA GeForce RTX 4090", 24564, "rtx4090"},
                       {"NVIDIA RTX A6000", 49140, "a6000"},
                       {"NVIDIA L40S", 46068, "l40s"},
                       {"Tesla V100-SXM2-32GB", 32510, "v100-32g"},
                       {"Tesla V100-SXM2-16GB", 16384, ""},
                       {"NVIDIA GeForce RTX 5090", 32607, ""},
                       {"", 81559, ""}};
  for (const Told& gpu : told) {
    const GpuSpec* const found = gpu_of_driver(gpu.name, gpu.mib * 1048576);
    EXPECT_EQ(found == nullptr ? "" : found->key, gpu.key) << gpu.name;
  }
}

TEST(Gpu, PeaksDependOnPrecision) {
  const GpuSpec h100 = *find_gpu("h100-80g");
  EXPECT_DOUBLE_EQ(*peak_flops(h100, Precision::kBf16), 989e12);
  EXPECT_GT(*peak_flops(h100, Precision::kFp8), *peak_flops(h100, Precision::kBf16));
  EXPECT_FALSE(peak_flops(*find_gpu("a100-80g"), Precision::kFp8).ok());
  EXPECT_EQ(*parse_precision("bf16"), Precision::kBf16);
  EXPECT_FALSE(parse_precision("bf17").ok());
}

}  // namespace
}  // namespace braid::inline cluster

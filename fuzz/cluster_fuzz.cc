// Clusters: what parses keeps its invariants and survives JSON.
#include "cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto cluster =
      braid::parse_cluster({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!cluster.ok()) return 0;
  BRAID_CHECK(braid::device_count(*cluster) >= 1, "a cluster without devices");
  const auto again = braid::cluster_from_json(braid::cluster_json(*cluster));
  BRAID_CHECK(again.ok(), again.status().message());
  BRAID_CHECK(*again == *cluster, "the cluster changes on its way through JSON");
  return 0;
}

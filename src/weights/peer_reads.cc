#include "weights/peer_reads.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "host/shared_disk.h"
#include "program/layout.h"
#include "program/local_parts.h"
#include "samples/call_groups.h"
#include "weights/load_models.h"

namespace braid::inline weights {
namespace {

// Of the roles' files those that lie on a disk of the network; "": none do.
std::string folder_on_network(const Config& config, const Graph& graph) {
  for (const RoleSpec& role : graph.roles) {
    const Result<Origin> origin = role_origin(config, role);
    if (!origin.ok() || origin->folder.empty()) continue;
    const Result<bool> far = is_on_network(origin->folder);  // a missing one is named by who loads
    if (far.ok() && *far) return origin->folder;
  }
  return "";
}

}  // namespace

Result<bool> reads_for_peers(const Config& config, const Graph& graph, World* world) {
  if (world == nullptr || world->world_size() == 1) return false;
  if (config.runtime.load != "auto") return config.runtime.load == "peers";
  if (world->membership().one_machine()) return false;
  std::string folder;
  if (world->global_rank() == 0) {
    folder = folder_on_network(config, graph);
    log_info(cat("runtime.load: auto is ",
                 folder.empty() ? "files: those of weights are on disks of this machine"
                                : cat("peers: ", folder, " is on a disk of the network")));
  }
  BRAID_ASSIGN(folder, world->told_by_first("runtime.load", folder));
  return !folder.empty();
}

Result<Communicator*> connect_readers(const WeightCopy& copy, World& world) {
  const ParamLayout& layout = copy.layout;
  if (layout.sharded || layout.dp == 1) return nullptr;
  auto at = place_in_grid(layout, DeviceId{static_cast<int>(world.global_rank())});
  BRAID_CHECK(at.has_value(), "a rank reads for copies that it has");
  OpGroup group;
  std::vector<int64_t> members;
  for (at->dp_rank = 0; at->dp_rank < layout.dp; ++at->dp_rank) {
    group.members.push_back(layout.mesh.devices[mesh_index(layout_grid(layout), *at)]);
    members.push_back(group.members.back().value);
  }
  return world.group(group_name("readers", group), std::move(members));
}

}  // namespace braid::inline weights

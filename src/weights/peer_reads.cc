#include "weights/peer_reads.h"

#include <utility>
#include <vector>

#include "program/layout.h"
#include "program/local_parts.h"
#include "samples/call_groups.h"

namespace braid::inline weights {

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

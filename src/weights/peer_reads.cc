#include "weights/peer_reads.h"

#include <ATen/ops/full.h>

#include <utility>

#include "base/text.h"
#include "program/layout.h"
#include "program/local_parts.h"
#include "samples/call_groups.h"

namespace braid::inline weights {
namespace {

class PeerReads : public SliceSharing {
 public:
  explicit PeerReads(Communicator& ranks) : ranks_(ranks) {}

  bool reads() const override { return ranks_.index() == 0; }

  Status share(const std::string& tensor, const Status& own, const at::Tensor& values) override {
    const int64_t reader = ranks_.members().front();
    const at::Tensor failed = at::full({1}, own.ok() ? 0 : 1, at::kInt);
    BRAID_TRY(ranks_.broadcast(failed, reader, cat(tensor, ", whether it was read")).wait());
    if (!own.ok()) return own;
    if (failed.item<int32_t>() != 0)
      return invalid_input(cat("rank ", reader,
                               ", which reads the files of weights for this one, "
                               "has failed at tensor ",
                               tensor, "; it says why"));
    if (values.numel() == 0) return ok_status();
    // As bytes: the backend does not know all types.
    return ranks_.broadcast(values.view({-1}).view(at::kByte), reader, tensor).wait();
  }

 private:
  Communicator& ranks_;
};

}  // namespace

std::vector<int64_t> equal_holders(const WeightCopy& copy, DeviceId rank) {
  const ParamLayout& layout = copy.layout;
  const auto place = place_in_mesh(layout, rank);
  BRAID_CHECK(place.has_value(), "a rank reads for copies that it has");
  if (layout.sharded) return {rank.value};
  const Strategy grid = layout_grid(layout);
  GridPosition at = grid_position(grid, *place);
  std::vector<int64_t> out;
  for (at.dp_rank = 0; at.dp_rank < layout.dp; ++at.dp_rank)
    out.push_back(layout.mesh.devices[mesh_index(grid, at)].value);
  return out;
}

Result<std::unique_ptr<SliceSharing>> connect_readers(const WeightCopy& copy, World& world) {
  const DeviceId self{static_cast<int>(world.global_rank())};
  std::vector<int64_t> members = equal_holders(copy, self);
  if (members.size() == 1) return std::unique_ptr<SliceSharing>();
  OpGroup group;
  for (const int64_t member : members) group.members.push_back({static_cast<int>(member)});
  BRAID_ASSIGN(Communicator* const ranks,
               world.group(group_name("readers", group), std::move(members)));
  return std::unique_ptr<SliceSharing>(std::make_unique<PeerReads>(*ranks));
}

}  // namespace braid::inline weights

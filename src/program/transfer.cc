#include "program/transfer.h"

#include <algorithm>
#include <tuple>

#include "base/status.h"
#include "base/text.h"

namespace braid {
namespace {

bool covers(const Interval& outer, const Interval& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

std::vector<int64_t> boundaries(const MoveItem& item) {
  std::vector<int64_t> cuts;
  for (const auto* holdings : {&item.owners, &item.receivers})
    for (const Holding& holding : *holdings) {
      cuts.push_back(holding.units.begin);
      cuts.push_back(holding.units.end);
    }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

struct Holder {
  DeviceId device;
  int node = 0;
  int32_t depth = 0;  // hops until it has the piece
};

// Moves one elementary interval: all holders have it whole, all receivers want it whole.
class PieceMover {
 public:
  PieceMover(const MoveItem& item, const Interval& units, const Cluster& cluster, SendLoad* load)
      : item_(item), units_(units), cluster_(cluster), load_(*load) {
    for (const Holding& owner : item.owners)
      if (covers(owner.units, units))
        holders_.push_back({owner.device, node_of(cluster, owner.device), 0});
  }

  // The receiver that has taken the least from other nodes comes first: on a node without the piece
  // it brings it in, and the others get it from there.
  void serve(std::vector<MovePiece>* pieces) {
    std::vector<DeviceId> missing;
    for (const Holding& receiver : item_.receivers)
      if (covers(receiver.units, units_) && !has(receiver.device))
        missing.push_back(receiver.device);
    BRAID_CHECK(missing.empty() || !holders_.empty(),
                cat("nobody holds units ", units_.begin, " to ", units_.end));
    std::stable_sort(missing.begin(), missing.end(), [&](DeviceId a, DeviceId b) {
      return load_.brought_in[a.value] < load_.brought_in[b.value];
    });
    for (const DeviceId device : missing)
      if (!has(device)) serve_one({device, node_of(cluster_, device), 0}, pieces);
  }

 private:
  bool has(DeviceId device) const {
    return std::any_of(holders_.begin(), holders_.end(),
                       [&](const Holder& holder) { return holder.device == device; });
  }

  void serve_one(Holder receiver, std::vector<MovePiece>* pieces) {
    const double bytes = item_.unit_bytes * static_cast<double>(units_.size());
    const Holder& sender = best_holder(receiver.node);
    receiver.depth = sender.depth + 1;
    const bool near = sender.node == receiver.node;
    (near ? load_.inside : load_.outside)[sender.device.value] += bytes;
    if (!near) load_.brought_in[receiver.device.value] += bytes;
    pieces->push_back({item_.id, units_, sender.device, receiver.device, sender.depth});
    holders_.push_back(receiver);
  }

  // Same node first, then the least loaded, then the fewest hops, then the earliest.
  const Holder& best_holder(int node) const {
    const auto key = [&](const Holder& h) {
      const bool near = h.node == node;
      const double load = (near ? load_.inside : load_.outside)[h.device.value];
      return std::tuple(!near, load, h.depth);
    };
    return *std::min_element(holders_.begin(), holders_.end(),
                             [&](const Holder& a, const Holder& b) { return key(a) < key(b); });
  }

  const MoveItem& item_;
  Interval units_;
  const Cluster& cluster_;
  SendLoad& load_;
  std::vector<Holder> holders_;
};

}  // namespace

void plan_moves(const MoveItem& item, const Cluster& cluster, SendLoad* load,
                std::vector<MovePiece>* pieces) {
  const std::vector<int64_t> cuts = boundaries(item);
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    PieceMover(item, {cuts[i], cuts[i + 1]}, cluster, load).serve(pieces);
}

}  // namespace braid

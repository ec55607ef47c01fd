#include "program/transfer.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/status.h"
#include "base/text.h"

namespace braid::inline program {
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

// Which receivers pass a piece on: all, those that brought it into their node, or the same to
// devices of their node only.
enum class Hops { kAny, kIntoNodes, kInsideNodes };

struct Holder {
  DeviceId device;
  int node = 0;
  int32_t depth = 0;  // hops until it has the piece
};

// Moves one elementary interval: all holders have it whole, all receivers want it whole.
class PieceMover {
 public:
  PieceMover(const MoveItem& item, const Interval& units, const Cluster& cluster, Hops hops,
             SendLoad* load)
      : item_(item), units_(units), cluster_(cluster), hops_(hops), load_(*load) {
    for (const Holding& owner : item.owners)
      if (covers(owner.units, units))
        holders_.push_back({owner.device, node_of(cluster, owner.device), 0});
  }

  // The receiver that has taken the least from other nodes comes first: on a node without the piece
  // it brings it in, and the others get it from there.
  void serve(std::vector<MovePiece>* pieces) {
    const int devices = device_count(cluster_);
    std::vector<bool> served(static_cast<size_t>(devices), false);
    for (const Holder& holder : holders_) served[holder.device.value] = true;
    // Among equals those after the first holder: several holders then begin with different ones.
    struct Missing {
      double brought_in = 0;
      int distance = 0;
      DeviceId device;
    };
    std::vector<Missing> missing;
    for (const Holding& receiver : item_.receivers) {
      const int32_t device = receiver.device.value;
      if (!covers(receiver.units, units_) || served[device]) continue;
      BRAID_CHECK(!holders_.empty(), cat("nobody holds units ", units_.begin, " to ", units_.end));
      served[device] = true;
      const int distance = (device - holders_.front().device.value + devices) % devices;
      missing.push_back({in_pieces(load_.brought_in[device]), distance, receiver.device});
    }
    std::stable_sort(missing.begin(), missing.end(), [](const Missing& a, const Missing& b) {
      return std::pair(a.brought_in, a.distance) < std::pair(b.brought_in, b.distance);
    });
    for (const Missing& one : missing)
      serve_one({one.device, node_of(cluster_, one.device), 0}, pieces);
  }

 private:
  double bytes() const { return item_.unit_bytes * static_cast<double>(units_.size()); }

  // Where owners send to every node, loads count in pieces of this size: what small tensors add
  // then changes nobody's turn, and pairs of devices send to each other what others do not wait
  // for.
  double in_pieces(double load) const {
    return hops_ == Hops::kInsideNodes && bytes() > 0 ? std::round(load / bytes()) : load;
  }

  void serve_one(Holder receiver, std::vector<MovePiece>* pieces) {
    const Holder& sender = best_holder(receiver.node);
    receiver.depth = sender.depth + 1;
    const bool near = sender.node == receiver.node;
    (near ? load_.inside : load_.outside)[sender.device.value] += bytes();
    if (!near) load_.brought_in[receiver.device.value] += bytes();
    pieces->push_back({item_.id, units_, sender.device, receiver.device, sender.depth});
    if (hops_ == Hops::kAny || !near) holders_.push_back(receiver);
  }

  // Same node first, then owners if no other may, then the least loaded, then the fewest hops, then
  // the earliest.
  const Holder& best_holder(int node) const {
    const auto key = [&](const Holder& h) {
      const bool near = h.node == node;
      const double load = in_pieces((near ? load_.inside : load_.outside)[h.device.value]);
      const bool may_not = hops_ == Hops::kInsideNodes && !near && h.depth > 0;
      return std::tuple(!near, may_not, load, h.depth);
    };
    return *std::min_element(holders_.begin(), holders_.end(),
                             [&](const Holder& a, const Holder& b) { return key(a) < key(b); });
  }

  const MoveItem& item_;
  Interval units_;
  const Cluster& cluster_;
  Hops hops_;
  SendLoad& load_;
  std::vector<Holder> holders_;
};

double largest(const SendLoad& load) {
  double most = 0;
  for (const double bytes : load.inside) most = std::max(most, bytes);
  return most;
}

}  // namespace

void plan_moves(const MoveItem& item, const Cluster& cluster, Relays relays, SendLoad* load,
                std::vector<MovePiece>* pieces) {
  const std::vector<int64_t> cuts = boundaries(item);
  const auto plan = [&](Hops hops, SendLoad* after, std::vector<MovePiece>* out) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      PieceMover(item, {cuts[i], cuts[i + 1]}, cluster, hops, after).serve(out);
  };
  if (relays == Relays::kIntoNodes) return plan(Hops::kInsideNodes, load, pieces);
  SendLoad passed_on = *load, direct = *load;
  std::vector<MovePiece> relayed, few_hops;
  plan(Hops::kAny, &passed_on, &relayed);
  plan(Hops::kIntoNodes, &direct, &few_hops);
  const bool as_even = largest(direct) <= largest(passed_on);
  *load = as_even ? direct : passed_on;
  const std::vector<MovePiece>& taken = as_even ? few_hops : relayed;
  pieces->insert(pieces->end(), taken.begin(), taken.end());
}

}  // namespace braid::inline program

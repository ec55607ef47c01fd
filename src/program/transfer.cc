#include "program/transfer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <unordered_map>

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
  int32_t node = 0;
  int32_t depth = 0;  // hops until it has the piece
};

using Nodes = std::vector<int32_t>;  // [device]

// Moves one elementary interval: all holders have it whole, all receivers want it whole.
class PieceMover {
 public:
  PieceMover(const MoveItem& item, const Interval& units, const Nodes& nodes, Hops hops,
             SendLoad* load)
      : item_(item), units_(units), nodes_(nodes), hops_(hops), load_(*load) {
    for (const Holding& owner : item.owners)
      if (covers(owner.units, units)) add({owner.device, node_of(owner.device), 0});
  }

  // The receiver that has taken the least from other nodes comes first: on a node without the piece
  // it brings it in, and the others get it from there.
  void serve(std::vector<MovePiece>* pieces) {
    const auto devices = static_cast<int>(nodes_.size());
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
    for (const Missing& one : missing) serve_one({one.device, node_of(one.device), 0}, pieces);
  }

 private:
  double bytes() const { return item_.unit_bytes * static_cast<double>(units_.size()); }

  // Where owners send to every node, loads count in pieces of this size: what small tensors add
  // then changes nobody's turn, and pairs of devices send to each other what others do not wait
  // for.
  double in_pieces(double load) const {
    return hops_ == Hops::kInsideNodes && bytes() > 0 ? std::round(load / bytes()) : load;
  }

  int32_t node_of(DeviceId device) const { return nodes_[device.value]; }

  // Which holder of another node sends next: owners if no other may, then the least loaded, then
  // the one with the fewest hops, then the earliest.
  using Turn = std::tuple<bool, double, int32_t, size_t>;
  Turn far_turn(size_t at) const {
    const Holder& h = holders_[at];
    return {hops_ == Hops::kInsideNodes && h.depth > 0, in_pieces(load_.outside[h.device.value]),
            h.depth, at};
  }

  void add(const Holder& holder) {
    holders_.push_back(holder);
    by_node_[holder.node].push_back(holders_.size() - 1);
    far_.insert(far_turn(holders_.size() - 1));
  }

  void serve_one(Holder receiver, std::vector<MovePiece>* pieces) {
    const size_t best = best_holder(receiver.node);
    const Holder sender = holders_[best];
    receiver.depth = sender.depth + 1;
    const bool near = sender.node == receiver.node;
    if (!near) far_.erase(far_turn(best));
    (near ? load_.inside : load_.outside)[sender.device.value] += bytes();
    if (!near) far_.insert(far_turn(best));
    if (!near) load_.brought_in[receiver.device.value] += bytes();
    pieces->push_back({item_.id, units_, sender.device, receiver.device, sender.depth});
    if (hops_ == Hops::kAny || !near) add(receiver);
  }

  // One of the same node, the least loaded, with the fewest hops, the earliest; else the next of
  // another.
  size_t best_holder(int32_t node) const {
    const auto near = by_node_.find(node);
    if (near == by_node_.end()) return std::get<3>(*far_.begin());
    const auto turn = [&](size_t at) {
      return std::tuple(in_pieces(load_.inside[holders_[at].device.value]), holders_[at].depth, at);
    };
    return *std::min_element(near->second.begin(), near->second.end(),
                             [&](size_t a, size_t b) { return turn(a) < turn(b); });
  }

  const MoveItem& item_;
  Interval units_;
  const Nodes& nodes_;
  Hops hops_;
  SendLoad& load_;
  std::vector<Holder> holders_;
  std::unordered_map<int32_t, std::vector<size_t>> by_node_;  // of holders_
  std::set<Turn> far_;
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
  const Nodes nodes = nodes_of(cluster);
  const auto plan = [&](Hops hops, SendLoad* after, std::vector<MovePiece>* out) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      PieceMover(item, {cuts[i], cuts[i + 1]}, nodes, hops, after).serve(out);
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

#include "program/reallocation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace braid {
namespace {

struct PlacedPiece {
  MovePiece piece;
  Interval layers = {0, 1};
  double unit_bytes = 0;  // over all layers
  int32_t round = 0;
};

// Messages in global order from pieces; a piece longer than a message is cut, its parts in rounds
// of their own.
std::vector<Message> to_messages(const std::vector<PlacedPiece>& pieces, MessageKind kind,
                                 double message_bytes) {
  using Key = std::tuple<int32_t, int32_t, DeviceId, DeviceId>;  // slot, depth, from, to
  std::map<Key, Message> messages;
  for (const PlacedPiece& placed : pieces) {
    const MovePiece& p = placed.piece;
    const double bytes = placed.unit_bytes * static_cast<double>(p.units.size());
    const auto parts = std::min<int64_t>(std::max(1.0, std::ceil(bytes / message_bytes)),
                                         std::max<int64_t>(p.units.size(), 1));
    for (int64_t i = 0; i < parts; ++i) {
      const auto slot = placed.round + p.depth + static_cast<int32_t>(i);
      Message& message = messages[{slot, p.depth, p.from, p.to}];
      const Interval units{p.units.begin + p.units.size() * i / parts,
                           p.units.begin + p.units.size() * (i + 1) / parts};
      message.kind = kind;
      message.from = p.from, message.to = p.to;
      message.slot = slot, message.depth = p.depth;
      message.bytes += placed.unit_bytes * static_cast<double>(units.size());
      message.parts.push_back({p.item, placed.layers, units});
    }
  }
  std::vector<Message> out;
  for (auto& [key, message] : messages) out.push_back(std::move(message));
  return out;
}

class ReallocationPlanner {
 public:
  ReallocationPlanner(const std::vector<TensorKind>& kinds, int64_t layers, const ParamLayout& from,
                      const ParamLayout& to, const Cluster& cluster,
                      const ReallocationOptions& options)
      : kinds_(kinds),
        layers_(layers),
        from_(from),
        to_(to),
        cluster_(cluster),
        options_(options),
        load_(device_count(cluster)),
        arrived_(to.pp) {}

  std::vector<Message> plan() {
    move_ends(true);
    for (const Interval& run : layer_runs())
      for (size_t kind = 0; kind < kinds_.size(); ++kind) {
        const Interval layers{std::max<int64_t>(run.begin, kinds_[kind].layer_begin),
                              std::min<int64_t>(run.end, kinds_[kind].layer_end)};
        if (layers.size() > 0) move(kind, layers);
      }
    move_ends(false);
    return to_messages(pieces_, MessageKind::kParameters, options_.message_bytes);
  }

 private:
  void move_ends(bool first) {
    for (size_t kind = 0; kind < kinds_.size(); ++kind)
      if (kinds_[kind].layer_begin == kinds_[kind].layer_end && kinds_[kind].first == first)
        move(kind, {0, 1});
  }

  // Runs of layers that one stage holds under either layout, cut further to balance senders.
  std::vector<Interval> layer_runs() const {
    std::vector<int64_t> cuts = {layers_};
    for (const ParamLayout* layout : {&from_, &to_}) {
      const int64_t parts = int64_t{layout->pp} * layout->interleave;
      for (int64_t part = 0; part < parts; ++part)
        cuts.push_back(layers_of_part(layers_, parts, part).begin);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<Interval> runs;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t length = cuts[i + 1] - cuts[i];
      const int64_t pieces = std::min(length, kRunsOfLayers);
      for (int64_t k = 0; k < pieces; ++k)
        runs.push_back({cuts[i] + length * k / pieces, cuts[i] + length * (k + 1) / pieces});
    }
    return runs;
  }

  std::vector<Holding> holdings(const TensorKind& kind, const ParamLayout& layout,
                                const Interval& layers) const {
    Strategy grid;
    grid.dp = layout.dp, grid.tp = layout.tp, grid.pp = layout.pp;
    std::vector<Holding> out;
    std::vector<bool> has(layout.pp);
    for (int stage = 0; stage < layout.pp; ++stage)
      for (const Interval& run : held_layers(kind, layout, layers_, stage))
        if (run.begin <= layers.begin && layers.end <= run.end) has[stage] = true;
    for (size_t i = 0; i < layout.mesh.devices.size(); ++i) {
      const GridPosition position = grid_position(grid, i);
      if (has[position.stage])
        out.push_back({layout.mesh.devices[i], held_elements(kind, layout, position)});
    }
    return out;
  }

  void move(size_t kind, const Interval& layers) {
    MoveItem item;
    item.id = static_cast<int32_t>(kind);
    item.unit_bytes = options_.bytes_per_parameter * static_cast<double>(layers.size());
    item.owners = holdings(kinds_[kind], from_, layers);
    item.receivers = holdings(kinds_[kind], to_, layers);
    std::vector<MovePiece> moved;
    plan_moves(item, cluster_, &load_, &moved);
    if (moved.empty()) return;
    const int32_t round = next_round(kinds_[kind], item);
    for (const MovePiece& piece : moved) pieces_.push_back({piece, layers, item.unit_bytes, round});
  }

  // Receivers of one stage fill one message after another.
  int32_t next_round(const TensorKind& kind, const MoveItem& item) {
    const int stage = kind.last && !kind.first ? to_.pp - 1 : stage_of(item.receivers[0].device);
    double largest = 0;
    for (const Holding& receiver : item.receivers)
      largest = std::max(largest, item.unit_bytes * static_cast<double>(receiver.units.size()));
    const auto round = static_cast<int32_t>(arrived_[stage] / options_.message_bytes);
    arrived_[stage] += largest;
    return round;
  }

  int stage_of(DeviceId device) const {
    const auto at = std::find(to_.mesh.devices.begin(), to_.mesh.devices.end(), device);
    return static_cast<int>(at - to_.mesh.devices.begin()) / (to_.dp * to_.tp);
  }

  const std::vector<TensorKind>& kinds_;
  int64_t layers_;
  const ParamLayout &from_, &to_;
  const Cluster& cluster_;
  const ReallocationOptions& options_;
  SendLoad load_;
  std::vector<double> arrived_;  // bytes per stage
  std::vector<PlacedPiece> pieces_;
};

}  // namespace

std::vector<Message> plan_reallocation(const std::vector<TensorKind>& kinds, int64_t layers,
                                       const ParamLayout& from, const ParamLayout& to,
                                       const Cluster& cluster, const ReallocationOptions& options) {
  return ReallocationPlanner(kinds, layers, from, to, cluster, options).plan();
}

std::vector<Message> plan_exchange(const std::vector<MoveItem>& fields, const Cluster& cluster) {
  SendLoad load(device_count(cluster));
  std::vector<PlacedPiece> pieces;
  for (const MoveItem& field : fields) {
    std::vector<MovePiece> moved;
    plan_moves(field, cluster, &load, &moved);
    for (const MovePiece& piece : moved) pieces.push_back({piece, {0, 1}, field.unit_bytes, 0});
  }
  return to_messages(pieces, MessageKind::kFields, HUGE_VAL);
}

}  // namespace braid

#include "program/reallocation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace braid::inline program {
namespace {

struct PlacedPiece {
  MovePiece piece;
  Interval layers = {0, 1};
  double unit_bytes = 0;  // over all layers
  int32_t round = 0;
  int32_t lane = 0;
};

// Messages in global order from pieces; a piece longer than a message is cut, its parts in rounds
// of their own.
std::vector<Message> to_messages(const std::vector<PlacedPiece>& pieces, double message_bytes,
                                 int32_t devices) {
  // Slot, depth, lane, distance of the devices, from: senders begin with different receivers.
  using Key = std::tuple<int32_t, int32_t, int32_t, int32_t, DeviceId>;
  std::map<Key, Message> messages;
  for (const PlacedPiece& placed : pieces) {
    const MovePiece& p = placed.piece;
    const double bytes = placed.unit_bytes * static_cast<double>(p.units.size());
    const auto parts = std::min<int64_t>(std::max(1.0, std::ceil(bytes / message_bytes)),
                                         std::max<int64_t>(p.units.size(), 1));
    for (int64_t i = 0; i < parts; ++i) {
      const auto slot = placed.round + p.depth + static_cast<int32_t>(i);
      const int32_t distance = (p.to.value - p.from.value + devices) % devices;
      Message& message = messages[{slot, p.depth, placed.lane, distance, p.from}];
      const Interval units{p.units.begin + p.units.size() * i / parts,
                           p.units.begin + p.units.size() * (i + 1) / parts};
      message.from = p.from, message.to = p.to;
      message.slot = slot, message.depth = p.depth, message.lane = placed.lane;
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

  void plan(Relays relays) {
    relays_ = relays;
    move_ends(true);
    for (const Interval& run : layers_together())
      for (size_t kind = 0; kind < kinds_.size(); ++kind) {
        const Interval layers{std::max<int64_t>(run.begin, kinds_[kind].layer_begin),
                              std::min<int64_t>(run.end, kinds_[kind].layer_end)};
        if (layers.size() > 0) move(kind, layers);
      }
    move_ends(false);
  }

  const std::vector<PlacedPiece>& pieces() const { return pieces_; }
  const SendLoad& load() const { return load_; }

 private:
  void move_ends(bool first) {
    for (size_t kind = 0; kind < kinds_.size(); ++kind)
      if (kinds_[kind].layer_begin == kinds_[kind].layer_end && kinds_[kind].first == first)
        move(kind, {0, 1});
  }

  // Layers that go together: those that one stage holds under either layout, cut at the ends of
  // virtual pipeline stages and further, to balance senders.
  std::vector<Interval> layers_together() const {
    std::vector<int64_t> cuts = {layers_};
    for (const ParamLayout* layout : {&from_, &to_}) {
      const int64_t parts = int64_t{layout->pp} * layout->interleave;
      for (int64_t part = 0; part < parts; ++part)
        cuts.push_back(part_layers(*layout, layers_, part).begin);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<Interval> runs;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t length = cuts[i + 1] - cuts[i];
      const int64_t pieces = std::min(length, kLayerPieces);
      for (int64_t k = 0; k < pieces; ++k)
        runs.push_back({cuts[i] + length * k / pieces, cuts[i] + length * (k + 1) / pieces});
    }
    return runs;
  }

  std::vector<Holding> holdings(const TensorKind& kind, const ParamLayout& layout,
                                const Interval& layers) const {
    const Strategy grid = layout_grid(layout);
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
    plan_moves(item, cluster_, relays_, &load_, &moved);
    if (moved.empty()) return;
    const int32_t round = next_round(kinds_[kind], item);
    const auto lane = stage_of(item.owners[0].device, from_);
    for (const MovePiece& piece : moved)
      pieces_.push_back({piece, layers, item.unit_bytes, round, lane});
  }

  // Receivers of one stage fill one message after another.
  int32_t next_round(const TensorKind& kind, const MoveItem& item) {
    const int stage =
        kind.last && !kind.first ? to_.pp - 1 : stage_of(item.receivers[0].device, to_);
    double largest = 0;
    for (const Holding& receiver : item.receivers)
      largest = std::max(largest, item.unit_bytes * static_cast<double>(receiver.units.size()));
    const auto round = static_cast<int32_t>(arrived_[stage] / options_.message_bytes);
    arrived_[stage] += largest;
    return round;
  }

  static int32_t stage_of(DeviceId device, const ParamLayout& layout) {
    const std::vector<DeviceId>& devices = layout.mesh.devices;
    const auto at = std::find(devices.begin(), devices.end(), device);
    return static_cast<int32_t>(at - devices.begin()) / (layout.dp * layout.tp);
  }

  const std::vector<TensorKind>& kinds_;
  int64_t layers_;
  const ParamLayout &from_, &to_;
  const Cluster& cluster_;
  const ReallocationOptions& options_;
  Relays relays_ = Relays::kIntoNodes;
  SendLoad load_;
  std::vector<double> arrived_;  // bytes per stage
  std::vector<PlacedPiece> pieces_;
};

// Of a device inside its node and out of it, bytes/s.
struct SendSpeed {
  double inside = 0, outside = 0;
};

// As the links between the first devices of the kind state it.
SendSpeed send_speed(const Cluster& cluster, const DeviceMesh& from, const DeviceMesh& to) {
  SendSpeed speed;
  const std::vector<int32_t> nodes = nodes_of(cluster);
  for (const DeviceId a : from.devices)
    for (const DeviceId b : to.devices) {
      double& known = nodes[a.value] == nodes[b.value] ? speed.inside : speed.outside;
      if (a != b && known == 0) known = 1e9 * link_between(cluster, a, b).gbytes_per_s;
      if (speed.inside > 0 && speed.outside > 0) return speed;
    }
  return speed;
}

double busiest_s(const SendLoad& load, const SendSpeed& speed) {
  const auto seconds = [](const std::vector<double>& bytes, double per_s) {
    return per_s > 0 ? *std::max_element(bytes.begin(), bytes.end()) / per_s : 0;
  };
  return std::max(seconds(load.inside, speed.inside), seconds(load.outside, speed.outside));
}

// As if all devices had sent the same.
double even_s(const SendLoad& load, const SendSpeed& speed) {
  const auto seconds = [](const std::vector<double>& bytes, double per_s) {
    const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    return per_s > 0 ? all / static_cast<double>(bytes.size()) / per_s : 0;
  };
  return std::max(seconds(load.inside, speed.inside), seconds(load.outside, speed.outside));
}

}  // namespace

std::vector<Message> plan_reallocation(const std::vector<TensorKind>& kinds, int64_t layers,
                                       const ParamLayout& from, const ParamLayout& to,
                                       const Cluster& cluster, const ReallocationOptions& options) {
  const SendSpeed speed = send_speed(cluster, from.mesh, to.mesh);
  ReallocationPlanner few(kinds, layers, from, to, cluster, options);
  ReallocationPlanner many = few;
  few.plan(Relays::kIntoNodes);
  const double few_s = busiest_s(few.load(), speed);
  bool as_good = few_s <= kHopsCost * even_s(few.load(), speed);
  if (!as_good) {
    many.plan(Relays::kWhereEven);
    as_good = few_s <= kHopsCost * busiest_s(many.load(), speed);
  }
  return to_messages((as_good ? few : many).pieces(), options.message_bytes, device_count(cluster));
}

}  // namespace braid::inline program

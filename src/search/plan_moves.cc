#include "search/plan_moves.h"

#include <algorithm>
#include <cmath>

#include "program/reallocation.h"
#include "search/plan_space.h"

namespace braid::planner {
namespace {

constexpr int kCells = 64;  // that tensor parallelism and shards cut a layer into
constexpr int32_t kLargestKey = 0xffff;

// The cells of a layer that a device of a stage holds.
uint64_t cells_of(const PlanOption& option, int32_t index) {
  const int32_t tp_rank = index % option.tp, dp_rank = index / option.tp;
  const int32_t slices = option.tp * option.shards;
  const int32_t slice = tp_rank * option.shards + (option.shards > 1 ? dp_rank : 0);
  const int begin = std::min(kCells - 1, slice * kCells / slices);
  const int end = std::max(begin + 1, (slice + 1) * kCells / slices);
  const uint64_t below_end = end == kCells ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  return below_end & ~((uint64_t{1} << begin) - 1);
}

// In parallel halves (Knuth 7.1.3): processors without an instruction for it would call a function.
double count(uint64_t cells) {
  cells -= cells >> 1 & 0x5555555555555555;
  cells = (cells & 0x3333333333333333) + (cells >> 2 & 0x3333333333333333);
  cells = (cells + (cells >> 4)) & 0x0f0f0f0f0f0f0f0f;
  return static_cast<double>(cells * 0x0101010101010101 >> 56);
}

// The stage of each layer.
void stages_of_layers(const PlanOption& option, int64_t layers, std::vector<int32_t>& out) {
  const int64_t parts = int64_t{option.pp} * option.interleave;
  out.resize(layers);
  for (int64_t part = 0; part < parts; ++part) {
    const Interval run = layers_of_part(layers, parts, part);
    for (int64_t layer = run.begin; layer < run.end; ++layer)
      out[layer] = static_cast<int32_t>(part % option.pp);
  }
}

// A run of devices: one stage of an option.
struct Block {
  const PlanOption& option;
  int32_t first, count;
  Block(const PlanOption& o, int32_t stage)
      : option(o), first(o.first + stage * (o.devices() / o.pp)), count(o.devices() / o.pp) {}
  bool has(int32_t device) const { return first <= device && device < first + count; }
  uint64_t cells(int32_t device) const { return cells_of(option, device - first); }
};

struct NodeUse {
  uint64_t held = 0, near = 0, far = 0;  // unions over its devices
  double near_sum = 0, far_sum = 0;      // sums over its receivers
  double holders = 0, others = 0;        // devices that hold, that only receive
};

class MoveLoads {
 public:
  explicit MoveLoads(const PlanSpace& space) : space_(space) {
    const auto devices = static_cast<size_t>(space.num_devices());
    for (auto* load : {&in_, &far_in_, &relayed_, &direct_.inside, &direct_.outside, &hops_.inside,
                       &hops_.outside})
      load->assign(devices, 0);
    nodes_.resize(static_cast<size_t>(space.node_of.back()) + 1);
    lack_.resize(devices);
  }

  // Bytes of layers that one stage holds before and one after.
  void add(const Block& from, const Block& to, double bytes) {
    const double cell = bytes / kCells;
    for (int32_t n = node(from.first); n <= node(from.first + from.count - 1); ++n) nodes_[n] = {};
    for (int32_t n = node(to.first); n <= node(to.first + to.count - 1); ++n) nodes_[n] = {};
    for (int32_t d = from.first; d < from.first + from.count; ++d) {
      nodes_[node(d)].held |= from.cells(d);
      ++nodes_[node(d)].holders;
    }
    for (int32_t d = to.first; d < to.first + to.count; ++d) {
      const uint64_t own = from.has(d) ? from.cells(d) : 0;
      NodeUse& use = nodes_[node(d)];
      lack_[d] = to.cells(d) & ~own;
      use.near |= lack_[d] & use.held;
      use.far |= lack_[d] & ~use.held;
      use.near_sum += count(lack_[d] & use.held);
      use.far_sum += count(lack_[d] & ~use.held);
      if (!from.has(d)) ++use.others;
    }
    receive(to, cell);
    send_inside(from, to, cell);
    send_far(from, to, cell);
  }

  double seconds(const MoveRates& rates) const {
    const double network = rate_between_nodes(rates);
    // Of the two ways to send, the one that the program takes (program/reallocation.cc).
    const bool direct = direct_.busiest_s(rates) <= kHopsCost * hops_.busiest_s(rates);
    const Sent& sent = direct ? direct_ : hops_;
    const double waits = direct ? 1 : kHopsCost;
    const double inside = std::max(most(in_), waits * most(sent.inside)) / rates.inside;
    const double outside = std::max(most(far_in_), waits * most(sent.outside)) / network;
    // What the last run of layers brings into a node is passed on there when the network is done.
    return rates.latency_s +
           std::max(inside, outside + most(relayed_) / rates.inside / kRunsOfLayers);
  }

 private:
  static double most(const std::vector<double>& load) {
    return *std::max_element(load.begin(), load.end());
  }

  // Bytes that each device sends.
  struct Sent {
    std::vector<double> inside, outside;
    double busiest_s(const MoveRates& rates) const {
      return std::max(most(inside) / rates.inside, most(outside) / rate_between_nodes(rates));
    }
  };

  int32_t node(int32_t device) const { return space_.node_of[device]; }

  void receive(const Block& to, double cell) {
    for (int32_t d = to.first; d < to.first + to.count; ++d) {
      const NodeUse& use = nodes_[node(d)];
      const double far = count(lack_[d] & ~use.held);
      const double brought = use.far_sum > 0 ? far * count(use.far) / use.far_sum : 0;
      far_in_[d] += cell * brought;
      in_[d] += cell * (count(lack_[d] & use.held) + far - brought);
      relayed_[d] += cell * (far - brought);
      direct_.inside[d] += cell * (far - brought);  // to the others, what it brings in
    }
  }

  // What holders of a node have to send there at least once, and the rest by all who have it.
  void send_inside(const Block& from, const Block& to, double cell) {
    const auto all = [](const NodeUse& use) {
      return (use.near_sum + use.far_sum - count(use.far)) /
             std::max(1.0, use.holders + use.others);
    };
    for (int32_t d = from.first; d < from.first + from.count; ++d) {
      const NodeUse& use = nodes_[node(d)];
      hops_.inside[d] += cell * std::max(all(use), count(use.near) / use.holders);
      direct_.inside[d] += cell * use.near_sum / use.holders;
    }
    for (int32_t d = to.first; d < to.first + to.count; ++d)
      if (!from.has(d)) hops_.inside[d] += cell * all(nodes_[node(d)]);
  }

  void send_far(const Block& from, const Block& to, double cell) {
    uint64_t once = 0;
    double sum = 0, relays = 0;
    for (int32_t n = node(to.first); n <= node(to.first + to.count - 1); ++n) {
      once |= nodes_[n].far;
      sum += count(nodes_[n].far);
      if (nodes_[n].far != 0) relays += nodes_[n].others;
    }
    if (sum == 0) return;
    if (sum <= count(once)) relays = 0;  // nothing is wanted twice
    const double all = sum / (from.count + relays);
    for (int32_t d = from.first; d < from.first + from.count; ++d) {
      hops_.outside[d] += cell * std::max(all, count(once) / from.count);
      direct_.outside[d] += cell * sum / from.count;
    }
    for (int32_t d = to.first; d < to.first + to.count && relays > 0; ++d)
      if (nodes_[node(d)].far != 0 && !from.has(d)) hops_.outside[d] += cell * all;
  }

  const PlanSpace& space_;
  std::vector<double> in_, far_in_;  // bytes by device, from its node and from others
  std::vector<double> relayed_;      // of in_, what others brought into the node
  Sent direct_, hops_;  // by owners and who brings in, or by whoever has received (Relays)
  std::vector<NodeUse> nodes_;
  std::vector<uint64_t> lack_;  // by device
};

double priced_move_s(const PlanSpace& space, const RoleSpace& role, const PlanOption& from,
                     const PlanOption& to) {
  std::vector<int32_t> before, after;
  stages_of_layers(from, role.layers, before);
  stages_of_layers(to, role.layers, after);
  std::vector<double> bytes(static_cast<size_t>(from.pp) * to.pp, 0);
  for (int64_t layer = 0; layer < role.layers; ++layer)
    bytes[static_cast<size_t>(before[layer]) * to.pp + after[layer]] += role.layer_bytes;
  bytes.front() += role.first_bytes;
  bytes.back() += role.last_bytes;
  MoveLoads loads(space);
  for (int32_t a = 0; a < from.pp; ++a)
    for (int32_t b = 0; b < to.pp; ++b)
      if (const double moved = bytes[static_cast<size_t>(a) * to.pp + b]; moved > 0)
        loads.add(Block(from, a), Block(to, b), moved);
  return loads.seconds(slower(space.rates[from.rates], space.rates[to.rates]));
}

}  // namespace

int64_t MoveMemo::find(int32_t from, int32_t to) const {
  if (from > kLargestKey || to > kLargestKey) return -1;
  const uint64_t key = uint64_t(from) << 16 | uint64_t(to);
  const uint64_t word = words_[key * 0x9e3779b97f4a7c15ULL >> 48].load(std::memory_order_relaxed);
  return word >> 32 == key + 1 ? static_cast<int64_t>(word & 0xffffffff) : -1;
}

void MoveMemo::keep(int32_t from, int32_t to, int64_t us) {
  if (from > kLargestKey || to > kLargestKey || us > 0xffffffff) return;
  const uint64_t key = uint64_t(from) << 16 | uint64_t(to);
  if (key == 0xffffffff) return;
  words_[key * 0x9e3779b97f4a7c15ULL >> 48].store((key + 1) << 32 | uint64_t(us),
                                                  std::memory_order_relaxed);
}

int64_t move_us(const PlanSpace& space, const RoleSpace& role, const PlanOption& from,
                const PlanOption& to) {
  if (from.layout == to.layout || !role.trained) return 0;
  const int64_t known = space.moves->find(from.layout, to.layout);
  if (known >= 0) return known;
  const int64_t us = std::llround(1e6 * priced_move_s(space, role, from, to));
  space.moves->keep(from.layout, to.layout, us);
  return us;
}

}  // namespace braid::planner

#include "search/moves.h"

#include <algorithm>
#include <cmath>

#include "program/reallocation.h"
#include "search/space.h"

namespace braid::inline search {
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
  double brought = 0;                    // share of far_sum that enters the node
};

// Bytes of a device. What it sends: by owners and by who brings a piece into a node, and otherwise
// by whoever has received (Relays).
struct DeviceLoad {
  double in = 0, far_in = 0;                     // from its node and from others
  double relayed = 0;                            // of in, what others brought into the node
  double direct_inside = 0, direct_outside = 0;  // sent
  double hops_inside = 0, hops_outside = 0;      // sent

  void raise_to(const DeviceLoad& other) {
    for (double DeviceLoad::*load :
         {&DeviceLoad::in, &DeviceLoad::far_in, &DeviceLoad::relayed, &DeviceLoad::direct_inside,
          &DeviceLoad::direct_outside, &DeviceLoad::hops_inside, &DeviceLoad::hops_outside})
      this->*load = std::max(this->*load, other.*load);
  }
};

class MoveLoads {
 public:
  explicit MoveLoads(const PlanSpace& space) : space_(space) {
    const auto devices = static_cast<size_t>(space.num_devices());
    load_.resize(devices);
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
    DeviceLoad most;
    for (const DeviceLoad& load : load_) most.raise_to(load);
    const double network = rate_between_nodes(rates);
    // Of the two ways to send, the one that the program takes (program/reallocation.cc).
    const double hops_s = std::max(most.hops_inside / rates.inside, most.hops_outside / network);
    const double direct_s =
        std::max(most.direct_inside / rates.inside, most.direct_outside / network);
    const bool direct = direct_s <= kHopsCost * hops_s;
    const double out = direct ? most.direct_inside : kHopsCost * most.hops_inside;
    const double far_out = direct ? most.direct_outside : kHopsCost * most.hops_outside;
    // What the last layers bring into a node is passed on there when the network is done.
    return rates.latency_s + std::max(std::max(most.in, out) / rates.inside,
                                      std::max(most.far_in, far_out) / network +
                                          most.relayed / rates.inside / kLayerPieces);
  }

 private:
  int32_t node(int32_t device) const { return space_.node_of[device]; }

  void receive(const Block& to, double cell) {
    for (int32_t n = node(to.first); n <= node(to.first + to.count - 1); ++n) {
      NodeUse& use = nodes_[n];
      use.brought = use.far_sum > 0 ? count(use.far) / use.far_sum : 0;
    }
    for (int32_t d = to.first; d < to.first + to.count; ++d) {
      const NodeUse& use = nodes_[node(d)];
      DeviceLoad& load = load_[d];
      const double far = cell * count(lack_[d] & ~use.held);
      const double passed_on = far - far * use.brought;  // to it, and as much by it to the others
      load.far_in += far * use.brought;
      load.in += cell * count(lack_[d] & use.held) + passed_on;
      load.relayed += passed_on;
      load.direct_inside += passed_on;
    }
  }

  // What holders of a node have to send there at least once, and the rest by all who have it.
  void send_inside(const Block& from, const Block& to, double cell) {
    const auto all = [&](const NodeUse& use) {
      return cell * (use.near_sum + use.far_sum * (1 - use.brought)) /
             std::max(1.0, use.holders + use.others);
    };
    int32_t known = -1;
    double hops = 0, direct = 0;
    for (int32_t d = from.first; d < from.first + from.count; ++d) {
      if (node(d) != known) {
        const NodeUse& use = nodes_[known = node(d)];
        hops = std::max(all(use), cell * count(use.near) / use.holders);
        direct = cell * use.near_sum / use.holders;
      }
      load_[d].hops_inside += hops;
      load_[d].direct_inside += direct;
    }
    known = -1;
    for (int32_t d = to.first; d < to.first + to.count; ++d) {
      if (node(d) != known) hops = all(nodes_[known = node(d)]);
      if (!from.has(d)) load_[d].hops_inside += hops;
    }
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
    const double all = cell * sum / (from.count + relays);
    const double hops = std::max(all, cell * count(once) / from.count);
    const double direct = cell * sum / from.count;
    for (int32_t d = from.first; d < from.first + from.count; ++d) {
      load_[d].hops_outside += hops;
      load_[d].direct_outside += direct;
    }
    for (int32_t d = to.first; d < to.first + to.count && relays > 0; ++d)
      if (nodes_[node(d)].far != 0 && !from.has(d)) load_[d].hops_outside += all;
  }

  const PlanSpace& space_;
  std::vector<DeviceLoad> load_;  // by device
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

int64_t slices_us(const PlanOption& from, const PlanOption& to) {
  return from.gather_us + to.arrive_us;
}

int64_t move_us(const PlanSpace& space, const RoleSpace& role, const PlanOption& from,
                const PlanOption& to) {
  if (from.layout == to.layout || !role.trained) return 0;
  const int64_t known = space.moves->find(from.layout, to.layout);
  if (known >= 0) return known;
  const int64_t us = slices_us(from, to) + std::llround(1e6 * priced_move_s(space, role, from, to));
  space.moves->keep(from.layout, to.layout, us);
  return us;
}

}  // namespace braid::inline search

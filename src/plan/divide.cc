#include "plan/divide.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/text.h"

namespace braid::inline plan {
namespace {

constexpr int kMostCuts = 512;   // places where one part may end and the next begin
constexpr size_t kMostFree = 6;  // parts that may change their order: all orders are looked at

// The devices of a part on a run of them, as numbers of cuts.
struct PartRun {
  size_t part = 0;
  int first = 0, end = 0;
};

// Over (parts that have devices, first cut that is free): what is left does not depend on how those
// before were placed.
class Divider {
 public:
  Divider(const Cluster& cluster, const std::vector<ClusterPart>& parts)
      : cluster_(cluster), parts_(parts) {
    add_cuts();
    add_devices();
  }

  // The least time of the part that works longest, or nothing where the units cover no cluster of
  // this size. Times are shares per speed.
  std::optional<double> least_time() const {
    double most = 0, sum = 0;
    for (const ClusterPart& part : parts_) sum += part.share, most = std::max(most, part.share);
    const double slowest = most / least_speed_, even = sum / speed_.back();
    // Few divisions are even enough for a low limit, so that they are looked at first.
    for (double limit = even; limit < slowest * 1.3; limit *= 1.2) {
      const auto found = best<double>(limit, 0.0, [&](double worst, const PartRun& run, uint32_t) {
        return std::max(worst, time_of(run));
      });
      if (found) return found->value;
    }
    return std::nullopt;
  }

  // REQUIRES: a division has this time at most.
  std::vector<PartRun> division(double limit) const {
    using Cost = std::tuple<int, int64_t, int>;  // straddles, unevenness, parts out of their order
    const auto add = [&](const Cost& cost, const PartRun& run, uint32_t placed) {
      const double time = time_of(run) / limit;
      const auto& [straddles, uneven, displaced] = cost;
      return Cost{straddles + straddles_of(run), uneven + std::llround(1e6 * time * time),
                  displaced + std::popcount(placed >> run.part)};
    };
    auto found = best<Cost>(limit, Cost{}, add);
    BRAID_CHECK(found.has_value(), "a division has this time");
    return std::move(found->runs);
  }

  DeviceMesh mesh_of(const PartRun& run) const {
    DeviceMesh mesh;
    for (int d = cuts_[run.first]; d < cuts_[run.end]; ++d) mesh.devices.push_back(DeviceId{d});
    return mesh;
  }

 private:
  template <class Value>
  struct State {
    Value value = {};
    PartRun last;
    bool reached = false;
  };
  template <class Value>
  struct Division {
    Value value = {};
    std::vector<PartRun> runs;  // by part
  };

  void add_cuts() {
    const int devices = device_count(cluster_);
    const int nodes = static_cast<int>(cluster_.nodes.size());
    const int every = (nodes + kMostCuts - 1) / kMostCuts;
    cuts_ = {0};
    int first = 0;
    for (int n = 0; n < nodes; ++n) {
      const int end = first + cluster_.nodes[n].devices;
      if (devices <= kMostCuts)
        for (int d = first + 1; d < end; ++d) cuts_.push_back(d);
      if (devices <= kMostCuts || (n + 1) % every == 0 || n + 1 == nodes) cuts_.push_back(end);
      first = end;
    }
  }

  // Speeds and places of devices, node by node: a lookup for each device would cost the square.
  void add_devices() {
    std::vector<double> before = {0};
    int first = 0;
    for (const Node& node : cluster_.nodes) {
      const double speed = node.gpu.sustained_tflops();
      least_speed_ = std::min(least_speed_, speed);
      const int place = node.nvlink_domain >= 0 ? -1 - node.nvlink_domain : first;
      const int joined =
          node.nvlink_domain >= 0 ? node.devices : nvlink_domain_devices(node.gpu, node.devices);
      for (int d = 0; d < node.devices; ++d) {
        before.push_back(before.back() + speed);
        places_.push_back(place);
        // Devices without NVLink are no domain that one could share.
        domains_.push_back(joined > 1 ? std::pair(place, d / joined) : std::pair(place, 0));
      }
      first += node.devices;
    }
    for (const int cut : cuts_) speed_.push_back(before[cut]);
  }

  double time_of(const PartRun& run) const {
    return parts_[run.part].share / (speed_[run.end] - speed_[run.first]);
  }

  // Whether a run of several groups of devices has one of them in part.
  template <class Group>
  static bool straddles(const std::vector<Group>& group, int first, int last) {
    if (group[first] == group[last]) return false;
    const auto devices = static_cast<int>(group.size());
    return (first > 0 && group[first - 1] == group[first]) ||
           (last + 1 < devices && group[last + 1] == group[last]);
  }

  int straddles_of(const PartRun& run) const {
    const int first = cuts_[run.first], last = cuts_[run.end] - 1;
    return int{straddles(places_, first, last)} + int{straddles(domains_, first, last)};
  }

  // The division of the least value in which no part takes longer than `limit`. `add` gives the
  // value with one run more; what it gives must grow with the value before.
  template <class Value, class Add>
  std::optional<Division<Value>> best(double limit, const Value& none, const Add& add) const {
    const int ends = static_cast<int>(cuts_.size());
    const uint32_t all = (1u << parts_.size()) - 1;
    std::vector<std::vector<State<Value>>> states(all + 1);
    states[0].resize(ends);
    states[0][0] = {none, {}, true};
    for (uint32_t placed = 0; placed < all; ++placed) {
      if (states[placed].empty()) continue;
      for (size_t part = 0; part < parts_.size(); ++part) {
        if ((placed >> part & 1) != 0 || !may_follow(placed, part)) continue;
        auto& next = states[placed | 1u << part];
        next.resize(ends);
        for (int first = 0; first < ends; ++first)
          if (const State<Value>& from = states[placed][first]; from.reached)
            extend<Value>({part, first, first}, limit, from.value, placed, add, next);
      }
    }
    if (states[all].empty() || !states[all].back().reached) return std::nullopt;
    return Division<Value>{states[all].back().value, runs_of(states, all)};
  }

  template <class Value, class Add>
  void extend(PartRun run, double limit, const Value& value, uint32_t placed, const Add& add,
              std::vector<State<Value>>& next) const {
    double rest = 0;  // of the speed that the others need
    for (size_t other = 0; other < parts_.size(); ++other)
      if (other != run.part && (placed >> other & 1) == 0) rest += parts_[other].share / limit;
    constexpr double kRounding = 1 + 1e-9;
    const int ends = static_cast<int>(cuts_.size());
    for (run.end = run.first + 1; run.end < ends; ++run.end) {
      if ((speed_.back() - speed_[run.end]) * kRounding < rest) return;
      if ((cuts_[run.end] - cuts_[run.first]) % parts_[run.part].unit != 0) continue;
      if (time_of(run) > limit * kRounding) continue;
      const Value with = add(value, run, placed);
      State<Value>& state = next[run.end];
      if (!state.reached || with <= state.value) state = {with, run, true};
    }
  }

  template <class Value>
  std::vector<PartRun> runs_of(const std::vector<std::vector<State<Value>>>& states,
                               uint32_t placed) const {
    std::vector<PartRun> runs(parts_.size());
    int end = static_cast<int>(cuts_.size()) - 1;
    while (placed != 0) {
      const PartRun& last = states[placed][end].last;
      runs[last.part] = last;
      placed &= ~(1u << last.part);
      end = last.first;
    }
    return runs;
  }

  // Many parts keep their order.
  bool may_follow(uint32_t placed, size_t part) const {
    return parts_.size() <= kMostFree || placed == (1u << part) - 1;
  }

  const Cluster& cluster_;
  const std::vector<ClusterPart>& parts_;
  std::vector<int> cuts_;      // devices before which a part may end, first and last included
  std::vector<double> speed_;  // of all devices before a cut
  double least_speed_ = INFINITY;
  std::vector<int> places_;                   // by device: equal for those of a node or rack
  std::vector<std::pair<int, int>> domains_;  // by device: equal for those that NVLink joins
};

// The nearest numbers of devices that multiples of the units sum up to.
std::string nearest_totals(const std::vector<ClusterPart>& parts, int64_t devices) {
  int64_t least = 0, largest = 1;
  for (const ClusterPart& part : parts) {
    least += part.unit;
    largest = std::max(largest, part.unit);
  }
  if (least >= devices) return cat(least);
  std::vector<bool> reached(static_cast<size_t>(devices + largest + 1 - least), false);
  reached[0] = true;
  int64_t below = least, above = least;
  for (int64_t more = 0; more < static_cast<int64_t>(reached.size()); ++more) {
    for (const ClusterPart& part : parts)
      if (more >= part.unit && reached[more - part.unit]) reached[more] = true;
    if (!reached[more]) continue;
    if (least + more < devices) below = least + more;
    above = least + more;
    if (above > devices) break;
  }
  return cat(below, " and ", above);
}

Status too_few(size_t parts, const Cluster& cluster) {
  const int devices = device_count(cluster);
  const bool one = devices == 1 && cluster.nodes.front().gpu.architecture == "cpu";
  return invalid_input(cat(parts, " disjoint parts need at least ", parts,
                           " devices, the cluster has ", devices,
                           one ? cat("; for ", parts, " processes of this machine write cluster=",
                                     "{nodes: 1, gpus_per_node: ", parts, "}")
                               : ""));
}

Status cannot_cover(const std::vector<ClusterPart>& parts, int devices) {
  std::vector<std::string> units;
  for (const ClusterPart& part : parts) units.push_back(cat(part.unit));
  return invalid_input(
      cat("parts in multiples of ", join(units, ", "),
          " devices (the sizes that parallel says) cannot cover the ", devices,
          " devices of the cluster; nearest numbers of devices: ", nearest_totals(parts, devices)));
}

}  // namespace

Result<std::vector<DeviceMesh>> divide_cluster(const Cluster& cluster,
                                               const std::vector<ClusterPart>& parts,
                                               double slack) {
  constexpr size_t kMostParts = 16;
  const int devices = device_count(cluster);
  if (parts.empty()) return std::vector<DeviceMesh>();
  if (static_cast<int>(parts.size()) > devices) return too_few(parts.size(), cluster);
  if (parts.size() > kMostParts)
    return invalid_input(cat("a cluster is divided into at most ", kMostParts, " parts, not ",
                             parts.size(), "; give roles their devices as lists"));
  const Divider divider(cluster, parts);
  const std::optional<double> least = divider.least_time();
  if (!least) return cannot_cover(parts, devices);
  std::vector<DeviceMesh> meshes;
  for (const PartRun& run : divider.division(*least * (1 + slack)))
    meshes.push_back(divider.mesh_of(run));
  return meshes;
}

}  // namespace braid::inline plan

#include "fuse/swap_walk.h"

#include <algorithm>
#include <cmath>

namespace braid::inline fuse {
namespace {

constexpr double kLongAgo = -1e300;

// Temperature over the work of a walk, looked at anew every so many proposals.
class Cooler {
 public:
  explicit Cooler(const SwapWalkOptions& options)
      : options_(options), rate_(std::log(options.last_temperature / options.first_temperature)) {}

  double at(int64_t step, int64_t work) {
    if (step % kPeriod == 0)
      temperature_ = options_.first_temperature *
                     std::exp(rate_ * double(work) / double(std::max<int64_t>(options_.work, 1)));
    return temperature_;
  }

 private:
  static constexpr int64_t kPeriod = 1024;
  const SwapWalkOptions& options_;
  const double rate_;
  double temperature_ = 0;
};

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a tenth of the time of the counter-based
// numbers, of which a walk would need hundreds of millions.
class QuickRandom {
 public:
  explicit QuickRandom(RandomStream& random) : state_(random()) {}
  int32_t below(int32_t bound) {
    return static_cast<int32_t>(((next() >> 32) * uint64_t(bound)) >> 32);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

}  // namespace

SwapWalk::SwapWalk(const OpGraph& graph) : graph_(graph), none_(graph.num_ops) {
  ops_.resize(graph.num_ops + 1);
  for (int32_t c = 0; c < static_cast<int32_t>(graph.classes.size()); ++c) {
    const OpClass& one = graph.classes[c];
    const auto linked = [&](int32_t cls, int32_t k) {
      return cls < 0 ? none_ : graph.classes[cls].first_op + k;
    };
    for (int32_t k = 0; k < one.count; ++k)
      ops_[one.first_op + k] = {.duration = one.duration,
                                .take = one.take,
                                .release = one.release,
                                .before = {linked(one.before[0], k), linked(one.before[1], k)},
                                .after = {linked(one.after[0], k), linked(one.after[1], k)},
                                .cls = c};
    has_lag_ = has_lag_ || one.lag_before[0] > 0 || one.lag_before[1] > 0;
  }
  ops_[none_] = {.end = kLongAgo, .way = kLongAgo, .before = {none_, none_}, .cls = -1};
  int32_t place = 1;
  for (int32_t node = 0; node < graph.nodes; ++node) {
    begins_.push_back(place);
    for (const int32_t c : graph.of_node[node]) place += graph.classes[c].count;
    ++place;
  }
  begins_.push_back(place);
  sequence_.assign(place, none_);
  level_.assign(place, 0);
  in_end_queue_.assign(graph.num_ops + 1, 0);
  in_way_queue_.assign(graph.num_ops + 1, 0);
  in_end_queue_[none_] = in_way_queue_[none_] = 1;  // never queued
}

double SwapWalk::input_ready(const Op& op) const {
  double first = ops_[op.before[0]].end, second = ops_[op.before[1]].end;
  if (has_lag_) {
    first += graph_.classes[op.cls].lag_before[0];
    second += graph_.classes[op.cls].lag_before[1];
  }
  return std::max(0.0, std::max(first, second));
}

double SwapWalk::output_way(const Op& op) const {
  double first = ops_[op.after[0]].way, second = ops_[op.after[1]].way;
  if (has_lag_) {
    first += graph_.classes[op.cls].lag_after[0];
    second += graph_.classes[op.cls].lag_after[1];
  }
  return std::max(0.0, std::max(first, second));
}

void SwapWalk::load(const ClassOrder& order) {
  std::vector<int32_t> next(graph_.classes.size(), 0);
  const OpStarts starts = earliest_starts(graph_, order);
  BRAID_CHECK(starts.makespan >= 0, "the order of a walk has a circle");
  for (int32_t node = 0; node < graph_.nodes; ++node) {
    int32_t place = begins_[node];
    double held = 0;
    for (const int32_t c : order[node]) {
      const int32_t op = graph_.classes[c].first_op + next[c]++;
      ops_[op].at = place;
      ops_[op].end = starts.start[op] + ops_[op].duration;
      ops_[op].way = 0;
      held += ops_[op].take;
      level_[place] = held;
      held -= ops_[op].release;
      sequence_[place++] = op;
    }
  }
  // By descending end every op comes after those that wait for it, but for ops without duration,
  // which the queue then corrects.
  for (int32_t op = 0; op < graph_.num_ops; ++op) queue_way(op);
  std::stable_sort(way_queue_.begin(), way_queue_.end(),
                   [&](int32_t a, int32_t b) { return ops_[a].end > ops_[b].end; });
  settle_ways();
}

double SwapWalk::excess(double level, const Op& op) const {
  return op.take > 0 ? std::max(0.0, level - cap_) : 0.0;
}

// Whether a way leads from the first to the second of two neighbours over other nodes; true also
// where the ends do not rule it out.
bool SwapWalk::linked_elsewhere(const Op& first, const Op& second) const {
  const int32_t v = sequence_[second.at];
  for (const int32_t x : first.after) {
    if (x == v) return true;
    if (x == none_) continue;
    const double end = ops_[x].end;
    for (const int32_t w : second.before)
      if (x == w || (w != none_ && end <= ops_[w].end - ops_[w].duration + graph_.rounding))
        return true;
  }
  return false;
}

double SwapWalk::length_when_swapped(int32_t at) const {
  const Op& u = ops_[sequence_[at]];
  const Op& v = ops_[sequence_[at + 1]];
  const double v_end = std::max(input_ready(v), ops_[sequence_[at - 1]].end) + v.duration;
  const double u_end = std::max(input_ready(u), v_end) + u.duration;
  const double u_way = std::max(output_way(u), ops_[sequence_[at + 2]].way) + u.duration;
  const double v_way = std::max(output_way(v), u_way) + v.duration;
  return std::max(u_end + u_way - u.duration, v_end + v_way - v.duration);
}

double SwapWalk::change_of_excess(int32_t at) const {
  const Op& u = ops_[sequence_[at]];
  const Op& v = ops_[sequence_[at + 1]];
  if (u.take + v.take == 0) return 0;
  const double before = level_[at] - u.take;
  const double now = excess(level_[at], u) + excess(level_[at + 1], v);
  const double v_level = before + v.take;
  return excess(v_level, v) + excess(v_level - v.release + u.take, u) - now;
}

double SwapWalk::total_excess() const {
  double above = 0;
  for (size_t at = 0; at < sequence_.size(); ++at) above += excess(level_[at], ops_[sequence_[at]]);
  return above;
}

void SwapWalk::queue_end(int32_t op) {
  if (in_end_queue_[op]) return;
  in_end_queue_[op] = 1;
  end_queue_.push_back(op);
}

void SwapWalk::queue_way(int32_t op) {
  if (in_way_queue_[op]) return;
  in_way_queue_[op] = 1;
  way_queue_.push_back(op);
}

void SwapWalk::swap_at(int32_t at) {
  const int32_t u = sequence_[at], v = sequence_[at + 1];
  const double before = level_[at] - ops_[u].take;
  sequence_[at] = v;
  sequence_[at + 1] = u;
  ops_[v].at = at;
  ops_[u].at = at + 1;
  level_[at] = before + ops_[v].take;
  level_[at + 1] = level_[at] - ops_[v].release + ops_[u].take;
  queue_end(v);
  queue_end(u);
  queue_end(sequence_[at + 2]);
  settle_ends();
  queue_way(u);
  queue_way(v);
  queue_way(sequence_[at - 1]);
  settle_ways();
}

void SwapWalk::settle_ends() {
  for (size_t i = 0; i < end_queue_.size(); ++i) {
    const int32_t id = end_queue_[i];
    Op& op = ops_[id];
    in_end_queue_[id] = 0;
    const double end = std::max(input_ready(op), ops_[sequence_[op.at - 1]].end) + op.duration;
    if (end == op.end) continue;
    op.end = end;
    queue_end(sequence_[op.at + 1]);
    queue_end(op.after[0]);
    queue_end(op.after[1]);
  }
  work_ += int64_t(end_queue_.size());
  end_queue_.clear();
}

void SwapWalk::settle_ways() {
  for (size_t i = 0; i < way_queue_.size(); ++i) {
    const int32_t id = way_queue_[i];
    Op& op = ops_[id];
    in_way_queue_[id] = 0;
    const double way = std::max(output_way(op), ops_[sequence_[op.at + 1]].way) + op.duration;
    if (way == op.way) continue;
    op.way = way;
    queue_way(sequence_[op.at - 1]);
    queue_way(op.before[0]);
    queue_way(op.before[1]);
  }
  work_ += int64_t(way_queue_.size());
  way_queue_.clear();
}

bool SwapWalk::keeps_cap(int32_t at) const {
  const Op& u = ops_[sequence_[at]];
  const Op& v = ops_[sequence_[at + 1]];
  const double v_level = level_[at] - u.take + v.take;
  return v_level <= cap_ && v_level - v.release + u.take <= cap_;
}

bool SwapWalk::can_swap(int32_t at) const {
  const Op& u = ops_[sequence_[at]];
  const Op& v = ops_[sequence_[at + 1]];
  return u.cls != v.cls && u.cls >= 0 && v.cls >= 0;
}

bool SwapWalk::lower_memory(const SwapWalkOptions& options, RandomStream& random) {
  QuickRandom quick(random);
  cap_ = options.memory_cap + graph_.memory_rounding;
  double above = total_excess();
  const double enough = graph_.memory_rounding;
  const double deadline = options.deadline + graph_.rounding;
  const auto places = static_cast<int32_t>(sequence_.size()) - 1;
  Cooler cooler(options);
  work_ = 0;
  for (int64_t step = 0; work_ < options.work && above > enough; ++step, ++work_) {
    const double temperature = cooler.at(step, work_);
    const int32_t at = quick.below(places);
    if (!can_swap(at)) continue;
    const double change = change_of_excess(at);
    if (change > 0 && quick.unit() >= std::exp(-change / temperature)) continue;
    if (length_when_swapped(at) > deadline) continue;
    if (linked_elsewhere(ops_[sequence_[at]], ops_[sequence_[at + 1]])) continue;
    swap_at(at);
    above += change;
  }
  return above <= enough;
}

bool SwapWalk::lower_makespan(const SwapWalkOptions& options, RandomStream& random) {
  QuickRandom quick(random);
  cap_ = options.memory_cap + graph_.memory_rounding;
  const double enough = options.deadline + graph_.rounding;
  const auto places = static_cast<int32_t>(sequence_.size()) - 1;
  Cooler cooler(options);
  work_ = 0;
  double present = makespan(), best = present;
  ClassOrder best_order = order();
  for (int64_t step = 0; work_ < options.work && best > enough; ++step, ++work_) {
    const double temperature = cooler.at(step, work_);
    const int32_t at = quick.below(places);
    if (!can_swap(at) || !keeps_cap(at)) continue;
    const double longer = length_when_swapped(at) - present;
    if (longer > 0 && quick.unit() >= std::exp(-longer / temperature)) continue;
    if (linked_elsewhere(ops_[sequence_[at]], ops_[sequence_[at + 1]])) continue;
    swap_at(at);
    present = makespan();
    if (present >= best - graph_.rounding) continue;
    best = present;
    best_order = order();
  }
  if (present > best) load(best_order);
  return best <= enough;
}

double SwapWalk::makespan() const {
  double end = 0;
  for (size_t node = 1; node < begins_.size(); ++node)
    end = std::max(end, ops_[sequence_[begins_[node] - 2]].end);
  return end;
}

double SwapWalk::peak() const { return *std::max_element(level_.begin(), level_.end()); }

ClassOrder SwapWalk::order() const {
  ClassOrder order(graph_.nodes);
  for (int32_t node = 0; node < graph_.nodes; ++node)
    for (int32_t place = begins_[node]; place + 1 < begins_[node + 1]; ++place)
      order[node].push_back(ops_[sequence_[place]].cls);
  return order;
}

}  // namespace braid::inline fuse

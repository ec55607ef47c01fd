#include "schedule/swap_walk.h"

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

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

}  // namespace

SwapWalk::SwapWalk(const OpGraph& graph) : graph_(graph) {
  sequence_.resize(graph.nodes);
  level_.resize(graph.nodes);
  int32_t ops = 0;
  for (int32_t node = 0; node < graph.nodes; ++node) {
    for (const int32_t c : graph.of_node[node]) ops += graph.classes[c].count;
    node_starts_.push_back(ops);
  }
  position_.resize(graph.num_ops);
  in_head_queue_.assign(graph.num_ops, 0);
  in_tail_queue_.assign(graph.num_ops, 0);
}

double SwapWalk::input_head(int32_t op) const {
  const OpClass& one = of(op);
  const int32_t k = op - one.first_op;
  double head = 0;
  for (int i = 0; i < 2; ++i) {
    if (one.before[i] < 0) break;
    const OpClass& before = graph_.classes[one.before[i]];
    head = std::max(head, head_[before.first_op + k] + before.duration + one.lag_before[i]);
  }
  return head;
}

double SwapWalk::output_tail(int32_t op) const {
  const OpClass& one = of(op);
  const int32_t k = op - one.first_op;
  double tail = 0;
  for (int i = 0; i < 2; ++i) {
    if (one.after[i] < 0) break;
    const OpClass& after = graph_.classes[one.after[i]];
    tail = std::max(tail, tail_[after.first_op + k] + after.duration + one.lag_after[i]);
  }
  return tail;
}

double SwapWalk::computed_head(int32_t op) const {
  const int32_t at = position_[op];
  double head = input_head(op);
  if (at > 0) {
    const int32_t before = op_at(of(op).node, at - 1);
    head = std::max(head, head_[before] + of(before).duration);
  }
  return head;
}

double SwapWalk::computed_tail(int32_t op) const {
  const auto& list = sequence_[of(op).node];
  const size_t at = size_t(position_[op]) + 1;
  double tail = output_tail(op);
  if (at < list.size()) tail = std::max(tail, tail_[list[at]] + of(list[at]).duration);
  return tail;
}

void SwapWalk::load(const ClassOrder& order) {
  const OpStarts starts = earliest_starts(graph_, order);
  BRAID_CHECK(starts.makespan >= 0, "the order of a walk has a circle");
  std::vector<int32_t> next(graph_.classes.size(), 0);
  for (int32_t node = 0; node < graph_.nodes; ++node) {
    sequence_[node].clear();
    for (const int32_t c : order[node]) {
      const int32_t op = graph_.classes[c].first_op + next[c]++;
      position_[op] = static_cast<int32_t>(sequence_[node].size());
      sequence_[node].push_back(op);
    }
    set_levels(node);
  }
  head_ = starts.start;
  tail_.assign(graph_.num_ops, 0);
  // By descending head every op comes after those that wait for it, but for ops without duration,
  // which the queue then corrects.
  std::vector<int32_t> by_head(graph_.num_ops);
  for (int32_t op = 0; op < graph_.num_ops; ++op) by_head[op] = op;
  std::stable_sort(by_head.begin(), by_head.end(),
                   [&](int32_t a, int32_t b) { return head_[a] > head_[b]; });
  for (const int32_t op : by_head) tail_[op] = computed_tail(op);
  tail_queue_ = by_head;
  std::fill(in_tail_queue_.begin(), in_tail_queue_.end(), 1);
  settle_tails();
}

void SwapWalk::set_levels(int32_t node) {
  level_[node].clear();
  double held = 0;
  for (const int32_t op : sequence_[node]) {
    held += of(op).take;
    level_[node].push_back(held);
    held -= of(op).release;
  }
}

double SwapWalk::excess(double level, const OpClass& one) const {
  return one.take > 0 ? std::max(0.0, level - cap_) : 0.0;
}

// Whether a way leads from the first to the second of two neighbours over other nodes; true also
// where the heads do not rule it out.
bool SwapWalk::linked_elsewhere(int32_t first, int32_t second) const {
  const OpClass& one = of(first);
  const OpClass& other = of(second);
  const int32_t k = first - one.first_op, m = second - other.first_op;
  for (int i = 0; i < 2 && one.after[i] >= 0; ++i)
    for (int j = 0; j < 2 && other.before[j] >= 0; ++j) {
      const OpClass& after = graph_.classes[one.after[i]];
      const int32_t x = after.first_op + k;
      const int32_t w = graph_.classes[other.before[j]].first_op + m;
      if (x == second || x == w || head_[x] + after.duration <= head_[w] + graph_.rounding)
        return true;
    }
  for (int i = 0; i < 2 && one.after[i] >= 0; ++i)
    if (graph_.classes[one.after[i]].first_op + k == second) return true;
  return false;
}

bool SwapWalk::keeps_deadline(Spot spot, double deadline) const {
  const auto& [node, at] = spot;
  const auto& list = sequence_[node];
  const int32_t u = list[at], v = list[at + 1];
  const double u_time = of(u).duration, v_time = of(v).duration;
  double v_head = input_head(v);
  if (at > 0) v_head = std::max(v_head, head_[list[at - 1]] + of(list[at - 1]).duration);
  const double u_head = std::max(input_head(u), v_head + v_time);
  double u_tail = output_tail(u);
  if (size_t(at) + 2 < list.size())
    u_tail = std::max(u_tail, tail_[list[at + 2]] + of(list[at + 2]).duration);
  if (u_head + u_time + u_tail > deadline) return false;
  const double v_tail = std::max(output_tail(v), u_time + u_tail);
  if (v_head + v_time + v_tail > deadline) return false;
  return !linked_elsewhere(u, v);
}

double SwapWalk::change_of_excess(Spot spot) const {
  const auto& [node, at] = spot;
  const OpClass& u = of(op_at(node, at));
  const OpClass& v = of(op_at(node, at + 1));
  const double before = level_[node][at] - u.take;
  const double now = excess(level_[node][at], u) + excess(level_[node][at + 1], v);
  const double v_level = before + v.take;
  return excess(v_level, v) + excess(v_level - v.release + u.take, u) - now;
}

void SwapWalk::swap_at(Spot spot) {
  const auto& [node, at] = spot;
  auto& list = sequence_[node];
  const double before = level_[node][at] - of(list[at]).take;
  std::swap(list[at], list[at + 1]);
  position_[list[at]] = at;
  position_[list[at + 1]] = at + 1;
  level_[node][at] = before + of(list[at]).take;
  level_[node][at + 1] = level_[node][at] - of(list[at]).release + of(list[at + 1]).take;
  const auto queue = [](std::vector<int32_t>& ops, std::vector<char>& in, int32_t op) {
    if (in[op]) return;
    in[op] = 1;
    ops.push_back(op);
  };
  queue(head_queue_, in_head_queue_, list[at]);
  queue(head_queue_, in_head_queue_, list[at + 1]);
  if (size_t(at) + 2 < list.size()) queue(head_queue_, in_head_queue_, list[at + 2]);
  queue(tail_queue_, in_tail_queue_, list[at + 1]);
  queue(tail_queue_, in_tail_queue_, list[at]);
  if (at > 0) queue(tail_queue_, in_tail_queue_, list[at - 1]);
  settle();
}

void SwapWalk::settle() {
  settle_heads();
  settle_tails();
}

void SwapWalk::settle_heads() {
  for (size_t i = 0; i < head_queue_.size(); ++i) {
    const int32_t op = head_queue_[i];
    in_head_queue_[op] = 0;
    ++work_;
    const double head = computed_head(op);
    if (head == head_[op]) continue;
    head_[op] = head;
    const OpClass& one = of(op);
    const auto push = [&](int32_t next) {
      if (in_head_queue_[next]) return;
      in_head_queue_[next] = 1;
      head_queue_.push_back(next);
    };
    const size_t at = size_t(position_[op]) + 1;
    if (at < sequence_[one.node].size()) push(sequence_[one.node][at]);
    for (int j = 0; j < 2 && one.after[j] >= 0; ++j)
      push(graph_.classes[one.after[j]].first_op + op - one.first_op);
  }
  head_queue_.clear();
}

void SwapWalk::settle_tails() {
  for (size_t i = 0; i < tail_queue_.size(); ++i) {
    const int32_t op = tail_queue_[i];
    in_tail_queue_[op] = 0;
    ++work_;
    const double tail = computed_tail(op);
    if (tail == tail_[op]) continue;
    tail_[op] = tail;
    const OpClass& one = of(op);
    const auto push = [&](int32_t next) {
      if (in_tail_queue_[next]) return;
      in_tail_queue_[next] = 1;
      tail_queue_.push_back(next);
    };
    if (position_[op] > 0) push(sequence_[one.node][position_[op] - 1]);
    for (int j = 0; j < 2 && one.before[j] >= 0; ++j)
      push(graph_.classes[one.before[j]].first_op + op - one.first_op);
  }
  tail_queue_.clear();
}

bool SwapWalk::keeps_cap(Spot spot) const {
  const OpClass& u = of(op_at(spot.node, spot.at));
  const OpClass& v = of(op_at(spot.node, spot.at + 1));
  const double v_level = level_[spot.node][spot.at] - u.take + v.take;
  return v_level <= cap_ && v_level - v.release + u.take <= cap_;
}

SwapWalk::Spot SwapWalk::propose(RandomStream& random) const {
  const auto place = static_cast<int32_t>(random.below(uint64_t(graph_.num_ops)));
  const auto found = std::upper_bound(node_starts_.begin(), node_starts_.end(), place);
  const auto node = static_cast<int32_t>(found - node_starts_.begin());
  const int32_t at = place - (node > 0 ? node_starts_[node - 1] : 0);
  const auto& list = sequence_[node];
  if (size_t(at) + 1 >= list.size() || graph_.class_of[list[at]] == graph_.class_of[list[at + 1]])
    return {-1, 0};
  return {node, at};
}

bool SwapWalk::lower_memory(const SwapWalkOptions& options, RandomStream& random) {
  cap_ = options.memory_cap + graph_.memory_rounding;
  double above = 0;
  for (int32_t node = 0; node < graph_.nodes; ++node)
    for (size_t at = 0; at < level_[node].size(); ++at)
      above += excess(level_[node][at], of(op_at(node, int32_t(at))));
  const double enough = graph_.memory_rounding;
  Cooler cooler(options);
  work_ = 0;
  for (int64_t step = 0; work_ < options.work && above > enough; ++step, ++work_) {
    const double temperature = cooler.at(step, work_);
    const Spot spot = propose(random);
    if (spot.node < 0) continue;
    const double change = change_of_excess(spot);
    if (change > 0 && random.unit() >= std::exp(-change / temperature)) continue;
    if (!keeps_deadline(spot, options.deadline + graph_.rounding)) continue;
    swap_at(spot);
    above += change;
  }
  return above <= enough;
}

bool SwapWalk::lower_makespan(const SwapWalkOptions& options, RandomStream& random) {
  cap_ = options.memory_cap + graph_.memory_rounding;
  const double enough = options.deadline + graph_.rounding;
  Cooler cooler(options);
  work_ = 0;
  double present = makespan(), best = present;
  ClassOrder best_order = order();
  for (int64_t step = 0; work_ < options.work && best > enough; ++step, ++work_) {
    const double temperature = cooler.at(step, work_);
    const Spot spot = propose(random);
    if (spot.node < 0 || !keeps_cap(spot)) continue;
    // Metropolis, solved for the longest makespan that this draw accepts.
    const double longest = present - temperature * std::log(1 - random.unit());
    if (!keeps_deadline(spot, longest)) continue;
    swap_at(spot);
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
  for (const auto& list : sequence_)
    if (!list.empty()) end = std::max(end, head_[list.back()] + of(list.back()).duration);
  return end;
}

double SwapWalk::peak() const {
  double peak = 0;
  for (const auto& levels : level_)
    for (const double level : levels) peak = std::max(peak, level);
  return peak;
}

ClassOrder SwapWalk::order() const {
  ClassOrder order(graph_.nodes);
  for (int32_t node = 0; node < graph_.nodes; ++node)
    for (const int32_t op : sequence_[node]) order[node].push_back(graph_.class_of[op]);
  return order;
}

}  // namespace braid

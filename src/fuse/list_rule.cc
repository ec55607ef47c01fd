#include "fuse/list_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace braid::inline fuse {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The stages of a pipeline that a micro-batch still has to enter when it has entered this one, this
// one included: what 1F1B keeps alive.
int32_t stages_below(const OpGraph& graph, const OpClass& one) {
  int32_t last = 0;
  for (const int32_t c : graph.of_pipeline[one.pipeline])
    last = std::max(last, graph.classes[c].stage);
  return last + 1 - one.stage;
}

// The longest way from a stage's first pass of a micro-batch to the end of its last, [holder]: what
// holds its memory at least.
std::vector<double> holding_times(const OpGraph& graph) {
  std::vector<double> first(graph.num_holders, kNever), last(graph.num_holders, 0);
  for (const OpClass& one : graph.classes) {
    first[one.holder] = std::min(first[one.holder], one.head);
    last[one.holder] = std::max(last[one.holder], one.head + one.duration);
  }
  for (size_t i = 0; i < last.size(); ++i) last[i] -= first[i];
  return last;
}

// Time of one micro-batch on the node that has most to do for it, [pipeline].
std::vector<double> periods_of(const OpGraph& graph) {
  std::vector<std::vector<double>> loads(graph.of_pipeline.size(),
                                         std::vector<double>(graph.nodes, 0));
  std::vector<double> periods(graph.of_pipeline.size(), 0);
  for (const OpClass& one : graph.classes)
    periods[one.pipeline] =
        std::max(periods[one.pipeline], loads[one.pipeline][one.node] += one.duration);
  return periods;
}

double random_priority(const OpClass& one, bool one_model_first, RandomStream& random) {
  double priority = random.unit();
  if (one.kind == PassKind::kForward) priority += random.unit();
  if (one.kind == PassKind::kWeight) priority += 2 * random.unit();
  return one_model_first ? priority + 2 * one.pipeline : priority;
}

// What quotas of a pipeline's stages are in proportion to, [holder]: alike, as 1F1B holds them, or
// as a pipeline without pauses does.
std::vector<double> quota_parts(const OpGraph& graph, RandomStream& random) {
  std::vector<double> parts(graph.num_holders, 1);
  const uint64_t kind = random.below(3);
  if (kind == 0) return parts;
  const std::vector<double> holding = holding_times(graph), periods = periods_of(graph);
  for (const OpClass& one : graph.classes)
    if (kind == 1) {
      parts[one.holder] = stages_below(graph, one);
    } else {
      parts[one.holder] = 1 + holding[one.holder] / std::max(periods[one.pipeline], 1e-300);
    }
  return parts;
}

// Shares of the memory limit.
std::vector<double> random_shares(const OpGraph& graph, RandomStream& random) {
  std::vector<double> shares(graph.of_pipeline.size());
  double total = 0;
  for (double& one : shares) total += one = 0.02 + std::pow(random.unit(), 3);
  for (double& one : shares) one /= total;
  return shares;
}

// Quotas that all fit into the memory limit at once, so that ops never wait for memory that nothing
// will release: shares of the pipelines by chance, their stages alike or in the ratios of 1F1B.
void fit_quotas(const OpGraph& graph, ListRule& rule, RandomStream& random) {
  const size_t pipelines = graph.of_pipeline.size();
  const std::vector<double> parts_of = quota_parts(graph, random);
  const auto parts = [&](const OpClass& one) { return parts_of[one.holder]; };
  const std::vector<double> share = random_shares(graph, random);
  std::vector<double> need(pipelines, 0);
  std::vector<std::vector<double>> held(pipelines, std::vector<double>(graph.nodes, 0));
  for (const OpClass& one : graph.classes)
    need[one.pipeline] =
        std::max(need[one.pipeline], held[one.pipeline][one.node] += one.take * parts(one));
  for (const OpClass& one : graph.classes) {
    const size_t p = size_t(one.pipeline);
    if (one.kind != PassKind::kForward || need[p] <= 0) continue;
    const double fit = share[p] * graph.memory_limit / need[p] * parts(one);
    rule.quota[one.holder] = std::max(1, static_cast<int32_t>(std::min(1e6, fit)));
  }
}

// Half of the rules have none; otherwise from a tie breaker to what outweighs all priorities.
double random_urgency(RandomStream& random) {
  return random.below(2) == 0 ? 0 : 0.5 * std::exp(4 * random.unit());
}

double longest_op(const OpGraph& graph) {
  double longest = 0;
  for (const OpClass& one : graph.classes) longest = std::max(longest, one.duration);
  return longest;
}

}  // namespace

ListSimulator::ListSimulator(const OpGraph& graph) : graph_(graph) {
  order_.resize(graph.nodes);
  for (int32_t node = 0; node < graph.nodes; ++node) {
    size_t ops = 0;
    for (const int32_t c : graph.of_node[node]) ops += graph.classes[c].count;
    order_[node].reserve(ops);
    load_.push_back(0);
    least_tail_.push_back(kNever);
    for (const int32_t c : graph.of_node[node]) {
      load_[node] += graph.classes[c].count * graph.classes[c].duration;
      least_tail_[node] = std::min(least_tail_[node], graph.classes[c].tail);
    }
  }
  period_ = periods_of(graph);
  for (const OpClass& one : graph.classes)
    longest_rest_ = std::max(longest_rest_, one.tail + one.count * period_[one.pipeline]);
  for (const OpClass& one : graph.classes)
    all_inputs_.push_back(int8_t((one.before[0] >= 0) + (one.before[1] >= 0)));
  find_needs();
}

void ListSimulator::find_needs() {
  need_.assign(graph_.of_pipeline.size() * graph_.nodes, 0);
  all_untaken_ = need_;
  needs_.assign(graph_.nodes, 0);
  later_.assign(graph_.classes.size(), 0);
  for (const auto& classes : graph_.of_pipeline)
    for (size_t i = classes.size(); i-- > 0;) {
      const OpClass& one = graph_.classes[classes[i]];
      const size_t place = place_of(one);
      later_[classes[i]] = need_[place];
      need_[place] += one.take;
      all_untaken_[place] += one.take * one.count;
      needs_[one.node] += one.take;
    }
}

void ListSimulator::reset() {
  for (auto& list : order_) list.clear();
  states_.assign(graph_.classes.size(), {});
  ready_.assign(graph_.num_ops, 0);
  inputs_.resize(graph_.num_ops);
  free_at_.assign(graph_.nodes, 0);
  held_.assign(graph_.nodes, 0);
  alive_.assign(graph_.num_holders, 0);
  held_of_.assign(need_.size(), 0);
  untaken_ = all_untaken_;
  rest_ = load_;
  events_.clear();
  makespan_ = peak_ = 0;
  for (size_t c = 0; c < graph_.classes.size(); ++c) {
    const OpClass& one = graph_.classes[c];
    std::fill_n(inputs_.begin() + one.first_op, one.count, all_inputs_[c]);
    if (all_inputs_[c] > 0) continue;
    states_[c].known = one.count;
    push(0, one.node);
  }
}

void ListSimulator::push(double time, int32_t node) {
  events_.push_back({time, node});
  std::push_heap(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.node > b.node;
  });
}

ListSimulator::Event ListSimulator::pop() {
  std::pop_heap(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.node > b.node;
  });
  const Event event = events_.back();
  events_.pop_back();
  return event;
}

bool ListSimulator::leaves_shares(const ListRule& rule, const OpClass& one) const {
  const double spare = std::max(0.0, cap_ - needs_[one.node]);
  double taken = held_[one.node] + one.take + later_[&one - graph_.classes.data()];
  for (size_t p = 0; p < rule.share.size(); ++p) {
    if (int32_t(p) == one.pipeline) continue;
    const size_t place = p * graph_.nodes + one.node;
    const double most =
        std::min(need_[place] + rule.share[p] * spare, held_of_[place] + untaken_[place]);
    taken += std::max(0.0, most - held_of_[place]);
  }
  return taken <= cap_ + graph_.memory_rounding;
}

bool ListSimulator::fits(const ListRule& rule, const OpClass& one) const {
  if (alive_[one.holder] >= rule.quota[one.holder]) return false;
  if (held_[one.node] + one.take > cap_ + graph_.memory_rounding) return false;
  return rule.share.empty() || leaves_shares(rule, one);
}

ListSimulator::Choice ListSimulator::choose(const ListRule& rule, int32_t node, double now) const {
  Choice choice;
  double best = kNever;
  const double weight = longest_rest_ > 0 ? rule.urgency / longest_rest_ : 0;
  for (const int32_t c : graph_.of_node[node]) {
    const State& state = states_[c];
    if (state.next >= state.known) continue;
    const OpClass& one = graph_.classes[c];
    const double ready = ready_[one.first_op + state.next];
    if (ready > now + rule.patience[node]) continue;
    const double rest = one.tail + (one.count - state.next) * period_[one.pipeline];
    const double number = rule.priority[c] - weight * rest;
    if (number >= best) continue;
    if (one.take > 0 && !fits(rule, one)) continue;
    best = number;
    choice = {c, std::max(now, ready)};
  }
  return choice;
}

void ListSimulator::tell_successors(const OpClass& one, int32_t k, double end) {
  for (int i = 0; i < 2; ++i) {
    const int32_t after = one.after[i];
    if (after < 0) continue;
    const OpClass& next = graph_.classes[after];
    const int32_t op = next.first_op + k;
    ready_[op] = std::max(ready_[op], end + one.lag_after[i]);
    if (--inputs_[op] > 0) continue;
    // Inputs come in order of micro-batch, from each of the classes before.
    State& state = states_[after];
    ++state.known;
    if (state.next == k) push(ready_[op], next.node);
  }
}

void ListSimulator::dispatch(int32_t cls, double start) {
  const OpClass& one = graph_.classes[cls];
  const int32_t k = states_[cls].next++;
  const double end = start + one.duration;
  order_[one.node].push_back(cls);
  free_at_[one.node] = end;
  rest_[one.node] -= one.duration;
  makespan_ = std::max(makespan_, end);
  peak_ = std::max(peak_, held_[one.node] + one.take);
  held_[one.node] += one.take - one.release;
  held_of_[place_of(one)] += one.take - one.release;
  untaken_[place_of(one)] -= one.take;
  alive_[one.holder] += (one.take > 0) - (one.release > 0);
  push(end, one.node);
  tell_successors(one, k, end);
}

ListOutcome ListSimulator::run(const ListRule& rule, double limit) {
  reset();
  cap_ = std::min(rule.cap, graph_.memory_limit);
  int32_t done = 0;
  while (!events_.empty()) {
    const Event event = pop();
    const double now = event.time;
    if (now < free_at_[event.node]) continue;
    const Choice choice = choose(rule, event.node, now);
    if (choice.cls < 0) continue;
    if (choice.start > now) {
      push(choice.start, event.node);
      continue;
    }
    const OpClass& one = graph_.classes[choice.cls];
    const double way = std::max(one.duration + one.tail, rest_[one.node] + least_tail_[one.node]);
    if (now + way >= limit) return {limit, 0, peak_};
    dispatch(choice.cls, now);
    ++done;
  }
  return {makespan_, graph_.num_ops - done, peak_};
}

ListRule random_rule(const OpGraph& graph, RandomStream& random) {
  ListRule rule;
  std::vector<double> groups(graph.num_groups);
  std::vector<int32_t> extra(graph.of_pipeline.size());
  for (int32_t& more : extra)
    more = static_cast<int32_t>(random.below(1 + random.below(uint64_t(graph.nodes) + 2)));
  const bool one_model_first = random.below(3) == 0;
  for (const OpClass& one : graph.classes)
    groups[one.group] = random_priority(one, one_model_first, random);
  rule.quota.assign(graph.num_holders, 0);
  for (const OpClass& one : graph.classes) {
    rule.priority.push_back(groups[one.group]);
    if (one.kind == PassKind::kForward)
      rule.quota[one.holder] = std::min(one.count, stages_below(graph, one) + extra[one.pipeline]);
  }
  const double patience = random.below(2) == 0 ? 0 : random.unit() * longest_op(graph);
  rule.patience.assign(graph.nodes, patience);
  rule.urgency = random_urgency(random);
  if (std::isinf(graph.memory_limit)) return rule;
  const uint64_t memory = random.below(4);
  if (memory < 2) fit_quotas(graph, rule, random);
  if (memory == 2) {
    rule.share = random_shares(graph, random);
    for (int32_t& quota : rule.quota) quota = 2 * quota;
  }
  return rule;
}

void mutate_rule(const OpGraph& graph, ListRule& rule, RandomStream& random) {
  const uint64_t changes = 1 + random.below(2);
  for (uint64_t i = 0; i < changes; ++i) {
    const uint64_t kind = random.below(9);
    if (kind < 4 && !rule.share.empty() && random.below(8) == 0) {
      rule.share = random_shares(graph, random);
    } else if (kind < 4) {
      int32_t& quota = rule.quota[random.below(rule.quota.size())];
      const auto step = static_cast<int32_t>(1 + random.below(2));
      quota = std::max(1, quota + (random.below(2) == 0 ? step : -step));
    } else if (kind < 5) {
      const OpClass& one = graph.classes[random.below(graph.classes.size())];
      const double priority = random_priority(one, false, random);
      for (size_t c = 0; c < graph.classes.size(); ++c)
        if (graph.classes[c].group == one.group) rule.priority[c] = priority;
    } else if (kind < 7) {
      rule.priority[random.below(rule.priority.size())] = 2 * random.unit();
    } else if (kind == 8) {
      rule.urgency = random_urgency(random);
    } else {
      rule.patience[random.below(rule.patience.size())] =
          random.below(2) == 0 ? 0 : random.unit() * longest_op(graph);
    }
  }
}

}  // namespace braid::inline fuse

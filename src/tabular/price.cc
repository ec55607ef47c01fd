#include "tabular/price.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "tabular/heap.h"

namespace braid::tabular {
namespace {

struct Node {
  const Option* devices = nullptr;  // the option whose devices the node occupies
  int64_t duration_us = 0;
  int64_t ready_us = 0;
  int missing = 0;              // predecessors that have not ended
  std::vector<int> successors;  // ordered: newly ready nodes enter the heap in this order
};

// The unrolled graph. Node of call c in copy k: k * num_calls + c; the four moves of each pair
// follow after all calls.
class Unrolled {
 public:
  Unrolled(const Problem& problem, const Plan& plan)
      : problem_(problem), plan_(plan), num_calls_(static_cast<int>(problem.calls.size())) {
    nodes_.reserve(size_t(problem.iterations) * problem.calls.size() * 5);
    add_calls();
    for (int k = 0; k < problem.iterations; ++k)
      for (const MovePair& pair : move_pairs(problem)) splice_moves(k, pair);
    for (const Node& node : nodes_)
      for (const int next : node.successors) ++nodes_[next].missing;
  }

  int64_t makespan_us() {
    ReadyHeap heap;
    for (const int source : sources()) heap.push({.ready = 0, .node = source});
    std::vector<int64_t> busy_until(problem_.num_devices, 0);
    int64_t latest = 0;
    while (!heap.empty()) {
      const Node& node = nodes_[heap.pop().node];
      const auto begin = busy_until.begin() + node.devices->first_device;
      const auto end = busy_until.begin() + node.devices->end_device();
      const int64_t done =
          std::max(node.ready_us, *std::max_element(begin, end)) + node.duration_us;
      std::fill(begin, end, done);
      latest = std::max(latest, done);
      for (const int next : node.successors) {
        nodes_[next].ready_us = std::max(nodes_[next].ready_us, done);
        if (--nodes_[next].missing == 0) heap.push({.ready = nodes_[next].ready_us, .node = next});
      }
    }
    return latest;
  }

 private:
  const Option& chosen(int call) const { return problem_.calls[call].options[plan_[call]]; }

  std::vector<int> sources() const {
    std::vector<int> found;
    for (int c = 0; c < num_calls_; ++c)
      if (problem_.calls[c].depends_on.empty()) found.push_back(c);
    return found;
  }

  std::vector<int> dependents(int call) const {
    std::vector<int> found;
    for (int c = 0; c < num_calls_; ++c) {
      const std::vector<int>& needs = problem_.calls[c].depends_on;
      if (std::count(needs.begin(), needs.end(), call) > 0) found.push_back(c);
    }
    return found;
  }

  void add_calls() {
    for (int k = 0; k < problem_.iterations; ++k)
      for (int c = 0; c < num_calls_; ++c) {
        Node node{.devices = &chosen(c), .duration_us = chosen(c).time_us, .successors = {}};
        const std::vector<int> inside = dependents(c);
        for (const int next : inside) node.successors.push_back(k * num_calls_ + next);
        if (inside.empty() && k + 1 < problem_.iterations)
          for (const int next : sources()) node.successors.push_back((k + 1) * num_calls_ + next);
        nodes_.push_back(std::move(node));
      }
  }

  int add_move(int call, int64_t duration_us, std::vector<int> successors) {
    Node node{
        .devices = &chosen(call), .duration_us = duration_us, .successors = std::move(successors)};
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  void splice_moves(int copy, const MovePair& pair) {
    const Call& call = problem_.calls[pair.train];
    const Layout& train = chosen(pair.train).layout;
    const Layout& other = chosen(pair.other).layout;
    const int node = copy * num_calls_ + pair.train;
    const int64_t there_us = move_time_us(problem_, call, other, train);
    const int64_t back_us = move_time_us(problem_, call, train, other);
    const int pre1 = add_move(pair.other, there_us, {node});
    const int pre2 = add_move(pair.train, there_us, {node});
    const int post1 = add_move(pair.train, back_us, nodes_[node].successors);
    const int post2 = add_move(pair.other, back_us, nodes_[node].successors);
    nodes_[node].successors = {post1, post2};
    for (const int before : call.depends_on) {
      std::vector<int>& list = nodes_[copy * num_calls_ + before].successors;
      list.erase(std::find(list.begin(), list.end(), node));
      list.insert(list.end(), {pre1, pre2});
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  int num_calls_;
  std::vector<Node> nodes_;
};

int64_t peak_bytes(const Problem& problem, const Plan& plan) {
  std::vector<int64_t> resident(problem.num_devices, 0);
  std::vector<int64_t> transient(problem.num_devices, 0);
  for (size_t c = 0; c < plan.size(); ++c) {
    const Option& option = problem.calls[c].options[plan[c]];
    for (int d = option.first_device; d < option.end_device(); ++d) {
      resident[d] += option.static_bytes;
      transient[d] = std::max(transient[d], option.peak_bytes - option.static_bytes);
    }
  }
  int64_t peak = 0;
  for (int d = 0; d < problem.num_devices; ++d) peak = std::max(peak, resident[d] + transient[d]);
  return peak;
}

int untabulated_moves(const Problem& problem, const Plan& plan) {
  int count = 0;
  for (const MovePair& pair : move_pairs(problem)) {
    const Call& train = problem.calls[pair.train];
    const Layout& a = train.options[plan[pair.train]].layout;
    const Layout& b = problem.calls[pair.other].options[plan[pair.other]].layout;
    if (a == b) continue;
    count += find_move(problem, train.model_size, a, b) == nullptr;
    count += find_move(problem, train.model_size, b, a) == nullptr;
  }
  return count;
}

}  // namespace

int64_t move_time_us(const Problem& problem, const Call& train, const Layout& source,
                     const Layout& destination) {
  if (source == destination) return 0;
  const Move* move = find_move(problem, train.model_size, source, destination);
  return move == nullptr ? 0 : move->time_us;
}

Price price_plan(const Problem& problem, const Plan& plan) {
  BRAID_CHECK(plan.size() == problem.calls.size(), "plan of another problem");
  const int64_t peak = peak_bytes(problem, plan);
  return {.cost_us = Unrolled(problem, plan).makespan_us(),
          .feasible = peak <= problem.device_memory_bytes,
          .peak_bytes = peak,
          .untabulated_moves = untabulated_moves(problem, plan)};
}

}  // namespace braid::tabular

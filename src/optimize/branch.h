// Depth-first branch and bound that can stop after a budget of work and hand back what it has not
// searched, so that a proof can be cut into work units. Not thread-safe: one tree object per
// thread; frontiers are values.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace braid::optimize {

// A child of a node: a choice, a lower bound on every leaf below it, and whether it is itself a
// leaf (bound = its cost).
template <typename Cost, typename Choice>
struct Child {
  Cost bound;
  Choice choice;
  bool is_leaf = false;
};

// What the search must know of its tree. The tree is a cursor that starts at the root.
//   push:   goes to a child; false if no leaf below it can cost less than limit (the cursor has
//   moved all the same). pop:    goes back to the parent. expand: all children that may lead to a
//   leaf below limit, by ascending bound; at least every such leaf is below one. work:   a count
//   that grows with the effort spent, the same for the same calls.
template <typename T>
concept BranchTree = requires(T& tree, const typename T::Choice& choice,
                              const typename T::Cost& limit,
                              std::vector<Child<typename T::Cost, typename T::Choice>>& children) {
  { tree.push(choice, limit) } -> std::same_as<bool>;
  tree.pop();
  tree.expand(limit, children);
  { tree.work() } -> std::convertible_to<int64_t>;
};

// Unsearched ground: some children of the node that `path` leads to from the root.
template <BranchTree T>
struct Frontier {
  std::vector<typename T::Choice> path;
  std::vector<Child<typename T::Cost, typename T::Choice>>
      children;  // by ascending bound, not empty
  const typename T::Cost& bound() const { return children.front().bound; }
};

template <BranchTree T>
struct BranchOutcome {
  std::optional<std::vector<typename T::Choice>>
      best;                       // a leaf below the limit given, the best one met
  typename T::Cost limit;         // cost of `best`, or the limit given
  std::vector<Frontier<T>> open;  // what the budget did not reach
};

template <BranchTree T>
class BranchSearch {
 public:
  BranchSearch(T& tree, typename T::Cost limit, int64_t budget)
      : tree_(tree), end_of_work_(tree.work() + budget) {
    outcome_.limit = std::move(limit);
  }

  // Searches below a frontier for leaves that cost less than the limit. The tree's cursor must be
  // at the root, and is there again afterwards.
  BranchOutcome<T> run(Frontier<T> frontier) {
    return run_below(std::move(frontier.path), [&] { search(std::move(frontier.children)); });
  }

  // As run, for all children of the node that a path leads to.
  BranchOutcome<T> run_subtree(std::vector<typename T::Choice> path) {
    return run_below(std::move(path), [&] { search_node(); });
  }

 private:
  using Children = std::vector<Child<typename T::Cost, typename T::Choice>>;

  template <typename Search>
  BranchOutcome<T> run_below(std::vector<typename T::Choice> path, const Search& search_there) {
    path_ = std::move(path);
    size_t depth = 0;
    bool alive = true;
    while (alive && depth < path_.size()) alive = tree_.push(path_[depth++], outcome_.limit);
    if (alive) search_there();
    for (; depth > 0; --depth) tree_.pop();
    return std::move(outcome_);
  }

  void search(Children children) {
    for (size_t i = 0; i < children.size(); ++i) {
      if (!(children[i].bound < outcome_.limit)) return;
      if (tree_.work() >= end_of_work_) return leave_open(children, i);
      path_.push_back(children[i].choice);
      if (children[i].is_leaf) {
        outcome_.best = path_;
        outcome_.limit = children[i].bound;
      } else {
        descend(children[i].choice);
      }
      path_.pop_back();
    }
  }

  void descend(const typename T::Choice& choice) {
    if (tree_.push(choice, outcome_.limit)) search_node();
    tree_.pop();
  }

  void search_node() {
    Children children;
    tree_.expand(outcome_.limit, children);
    search(std::move(children));
  }

  void leave_open(const Children& children, size_t from) {
    outcome_.open.push_back({path_, Children(children.begin() + from, children.end())});
  }

  T& tree_;
  int64_t end_of_work_;
  std::vector<typename T::Choice> path_;
  BranchOutcome<T> outcome_;
};

// What the leaves of a tree cost at least, or the limit if none costs less: best first, in pieces
// of `piece` of work, until the budget is spent or `stop` says so (empty: never). The tree's cursor
// must be at the root, and is there again afterwards.
template <BranchTree T>
typename T::Cost least_cost(T& tree, typename T::Cost limit, int64_t budget, int64_t piece,
                            const std::function<bool()>& stop = {}) {
  std::multimap<typename T::Cost, Frontier<T>> open;
  Frontier<T> all;
  tree.expand(limit, all.children);
  if (!all.children.empty()) open.emplace(all.bound(), std::move(all));
  const int64_t end_of_work = tree.work() + budget;
  while (!open.empty() && open.begin()->first < limit && tree.work() < end_of_work &&
         !(stop && stop())) {
    Frontier<T> lowest = std::move(open.begin()->second);
    open.erase(open.begin());
    BranchOutcome<T> outcome = BranchSearch<T>(tree, limit, piece).run(std::move(lowest));
    limit = outcome.limit;
    for (Frontier<T>& left : outcome.open) {
      const typename T::Cost bound = left.bound();
      open.emplace(bound, std::move(left));
    }
  }
  return open.empty() ? limit : std::min(limit, open.begin()->first);
}

}  // namespace braid::optimize

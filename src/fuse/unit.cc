#include "fuse/unit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fuse/bounds.h"
#include "fuse/swap_walk.h"

namespace braid::inline fuse {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Sizes of units, so chosen that one takes some tenths of a second.
constexpr int64_t kListOps = 600'000;  // ops scheduled by the rules of a unit
constexpr int64_t kListLooks = 400'000'000;
constexpr int64_t kMemoryWork = 10'000'000;
constexpr int64_t kMakespanWork = 12'000'000;

// Small problems need less.
int64_t walk_work(const OpGraph& graph, int64_t most) {
  constexpr int64_t kPerPair = 100;  // of ops
  return std::min(most, kPerPair * graph.num_ops * graph.num_ops);
}

// Of the runs of a unit without a rule to start from, one in so many draws a rule anew, but at most
// so many; more where none of them keeps the memory limit.
constexpr int kDrawnShare = 4;
constexpr int kMostDrawn = 24;

int list_runs(const OpGraph& graph) {
  int64_t looks = 1;  // of a run: for each op at the classes of its node
  for (const OpClass& one : graph.classes)
    looks += one.count * int64_t(graph.of_node[one.node].size());
  const int64_t runs = std::clamp<int64_t>(kListOps / std::max(graph.num_ops, 1), 40, 2000);
  return static_cast<int>(std::clamp<int64_t>(kListLooks / looks, 1, runs));
}

double between(double low, double high, RandomStream& random) {
  return low + (high - low) * random.unit();
}

// First temperature of a walk to less memory, in takes: from what forgets the start to what stays
// near it.
double walk_warmth(RandomStream& random) {
  return random.below(2) == 0 ? between(0.5, 2.5, random) : std::exp(between(-2.5, 0, random));
}

// Half of the changed rules get a memory cap of their own, somewhat below what the best one takes.
void lower_cap(const ListOutcome& best, ListRule& rule, RandomStream& random) {
  constexpr double kMostLower = 0.15;
  if (random.below(2) == 0) return;
  const double draw = random.unit();
  rule.cap = best.peak * (1 - kMostLower * draw * draw);
}

bool has_met(const FuseContext& context, const ListAim& aim, const ListOutcome& outcome) {
  return outcome.missing == 0 && outcome.makespan <= aim.makespan + context.graph.rounding &&
         outcome.peak <= aim.peak + context.graph.memory_rounding;
}

}  // namespace

FuseContext make_fuse_context(const OpGraph& graph) {
  FuseContext context{graph, reversed(graph), graph, {}};
  context.free_graph.memory_limit = kNoLimit;
  context.free_mirror = reversed(context.free_graph);
  context.bound = lower_bound(graph);
  context.memory_bound = memory_lower_bound(graph);
  context.limited = graph.memory_limit < kNoLimit;
  for (const OpClass& one : graph.classes) {
    context.largest_take = std::max(context.largest_take, one.take);
    context.longest = std::max(context.longest, one.duration);
  }
  return context;
}

bool at_least_as_near(const FuseContext& context, const ListAim& aim, const ListOutcome& a,
                      const ListOutcome& b) {
  if (a.missing != b.missing) return a.missing < b.missing;
  const double rounding = context.graph.rounding;
  const double over_a = std::max(a.makespan, aim.makespan);
  const double over_b = std::max(b.makespan, aim.makespan);
  if (over_a < over_b - rounding) return true;
  if (over_a > over_b + rounding) return false;
  return aim.peak == kNoLimit || a.peak <= b.peak + context.graph.memory_rounding;
}

FuseCandidate rated(const OpGraph& graph, ClassOrder order) {
  FuseCandidate candidate{std::move(order), 0, 0};
  candidate.makespan = earliest_starts(graph, candidate.order).makespan;
  for (const double peak : peak_of_order(graph, candidate.order))
    candidate.peak = std::max(candidate.peak, peak);
  return candidate;
}

FuseUnitOutput list_unit(const FuseContext& context, const std::optional<RatedRule>& from,
                         const ListAim& aim, RandomStream& random) {
  const bool backwards = from ? from->backwards : random.unit() < 0.4;
  const OpGraph& forwards = aim.free ? context.free_graph : context.graph;
  const OpGraph& graph = !backwards ? forwards : aim.free ? context.free_mirror : context.mirror;
  ListSimulator simulator(graph);
  RatedRule best{from ? from->rule : random_rule(graph, random), {}, backwards};
  best.outcome = simulator.run(best.rule, kNoLimit);
  ClassOrder order = simulator.order();
  const int runs = list_runs(graph);
  // Few draws keep units apart, many find the rare good rule.
  int drawn = from ? 0 : std::min(runs / kDrawnShare, kMostDrawn) >> random.below(3);
  for (int i = 0; i < runs; ++i) {
    if (has_met(context, aim, best.outcome)) break;
    ListRule changed = i < drawn ? random_rule(graph, random) : best.rule;
    if (i >= drawn) {
      mutate_rule(graph, changed, random);
      if (aim.peak < kNoLimit && best.outcome.missing == 0)
        lower_cap(best.outcome, changed, random);
    }
    if (i + 1 == drawn && best.outcome.missing > 0 && i < runs / kDrawnShare) ++drawn;
    const double limit = best.outcome.missing > 0
                             ? kNoLimit
                             : std::max(aim.makespan, best.outcome.makespan) + 2 * graph.rounding;
    const ListOutcome outcome = simulator.run(changed, limit);
    // Equals are taken, so that rules drift; a run that was cut off reports the limit.
    if (outcome.makespan >= limit || !at_least_as_near(context, aim, outcome, best.outcome))
      continue;
    best.rule = std::move(changed);
    best.outcome = outcome;
    order = simulator.order();
  }
  FuseUnitOutput output;
  if (best.outcome.missing == 0) {
    if (backwards)
      for (auto& list : order) std::reverse(list.begin(), list.end());
    output.found = rated(context.graph, std::move(order));
  }
  output.rule = std::move(best);
  return output;
}

FuseUnitOutput memory_unit(const FuseContext& context, const FuseCandidate& from, double deadline,
                           double cap, RandomStream& random) {
  SwapWalk walk(context.graph);
  walk.load(from.order);
  const SwapWalkOptions options{
      .memory_cap = cap,
      .deadline = deadline,
      .work = walk_work(context.graph, kMemoryWork) << random.below(3),
      .first_temperature = context.largest_take * walk_warmth(random),
      .last_temperature = context.largest_take * between(0.02, 0.06, random)};
  walk.lower_memory(options, random);
  return {rated(context.graph, walk.order()), {}};
}

FuseUnitOutput makespan_unit(const FuseContext& context, const FuseCandidate& from, double cap,
                             RandomStream& random) {
  SwapWalk walk(context.graph);
  walk.load(from.order);
  const SwapWalkOptions options{.memory_cap = cap,
                                .deadline = context.bound,
                                .work = walk_work(context.graph, kMakespanWork),
                                .first_temperature = context.longest * between(0.02, 0.2, random),
                                .last_temperature = context.longest * 0.01};
  walk.lower_makespan(options, random);
  return {rated(context.graph, walk.order()), {}};
}

FuseUnitOutput loosened_unit(const FuseContext& context, const FuseCandidate& from,
                             RandomStream& random) {
  const double cap = context.graph.memory_limit + context.largest_take * between(0.2, 3, random);
  const FuseUnitOutput shorter = makespan_unit(context, from, cap, random);
  if (!(shorter.found->makespan < from.makespan - context.graph.rounding)) return {};
  return memory_unit(context, *shorter.found, shorter.found->makespan, context.graph.memory_limit,
                     random);
}

}  // namespace braid::inline fuse

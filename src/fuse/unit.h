// One unit of the search for fused schedules: a few tenths of a second of list scheduling or of a
// random walk, from what the units before it found. A pure function of its arguments.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "fuse/list_rule.h"
#include "fuse/op_graph.h"

namespace braid::inline fuse {

struct FuseCandidate {
  ClassOrder order;
  double makespan = 0;
  double peak = 0;  // by order, highest of all nodes
};

// A rule with what it gave; `backwards`: on the reversed problem.
struct RatedRule {
  ListRule rule;
  ListOutcome outcome;
  bool backwards = false;
};

// Constants of a search.
struct FuseContext {
  OpGraph graph, mirror;                 // with the memory limit
  OpGraph free_graph, free_mirror;       // without
  double bound = 0;                      // of the makespan
  double memory_bound = 0;               // of the peak
  double largest_take = 0, longest = 0;  // of any op
  bool limited = false;
};

FuseContext make_fuse_context(const OpGraph& graph);

// What rules are sought for: all ops run; then a makespan of at most `makespan`; then, if any peak
// is given, one of at most `peak`.
struct ListAim {
  bool free = false;  // without the memory limit
  double makespan = 0;
  double peak = std::numeric_limits<double>::infinity();
};

// Whether a rule that gave `a` is at least as near to the aim as one that gave `b`.
bool at_least_as_near(const FuseContext& context, const ListAim& aim, const ListOutcome& a,
                      const ListOutcome& b);

// What a unit starts from.
struct FuseUnitInput {
  std::optional<FuseCandidate> best;     // the best schedule that keeps the limit
  std::optional<FuseCandidate> relaxed;  // one that is shorter but may exceed the limit
  std::optional<RatedRule> rule;         // one that came near the aim
  ListAim aim;                           // of rules
};

struct FuseUnitOutput {
  std::optional<FuseCandidate> found;  // keeps the limit when `limited` was true
  std::optional<RatedRule> rule;       // of list units
};

// Searches rules from a random or the given one until the aim is met.
FuseUnitOutput list_unit(const FuseContext& context, const std::optional<RatedRule>& from,
                         const ListAim& aim, RandomStream& random);
// Lowers the memory of a schedule that meets the deadline towards a cap.
FuseUnitOutput memory_unit(const FuseContext& context, const FuseCandidate& from, double deadline,
                           double cap, RandomStream& random);
// Shortens a schedule that keeps the cap.
FuseUnitOutput makespan_unit(const FuseContext& context, const FuseCandidate& from, double cap,
                             RandomStream& random);
// Shortens a schedule under a somewhat looser limit and lowers the memory of what that gives.
// Nothing is found when a looser limit does not help. REQUIRES: a memory limit.
FuseUnitOutput loosened_unit(const FuseContext& context, const FuseCandidate& from,
                             RandomStream& random);

FuseCandidate rated(const OpGraph& graph, ClassOrder order);

}  // namespace braid::inline fuse

// HybridFlow's auto-mapping (arXiv 2409.19256, algorithms 1 and 2).
#include <algorithm>
#include <limits>
#include <map>

#include "base/text.h"
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kStages = 3;
constexpr int kUnits = 16;  // granularity of device counts on large clusters

int stage_of(const Call& call) {
  if (call.kind == CallKind::kGenerate) return 0;
  return call.kind == CallKind::kTrainStep ? 2 : 1;
}

// Set index of each role.
using RoleSets = std::vector<int>;

// All partitions of `roles` roles into sets, as restricted growth strings.
std::vector<RoleSets> partitions(int roles) {
  std::vector<RoleSets> out = {{}};
  for (int i = 0; i < roles; ++i) {
    std::vector<RoleSets> longer;
    for (const RoleSets& prefix : out) {
      const int sets = prefix.empty() ? 0 : *std::max_element(prefix.begin(), prefix.end()) + 1;
      for (int set = 0; set <= sets; ++set) {
        longer.push_back(prefix);
        longer.back().push_back(set);
      }
    }
    out = std::move(longer);
  }
  return out;
}

// All ways to write `units` as an ordered sum of `parts` positive numbers.
std::vector<std::vector<int>> compositions(int units, int parts) {
  if (parts == 1) return {{units}};
  std::vector<std::vector<int>> out;
  for (int first = 1; first <= units - parts + 1; ++first)
    for (std::vector<int>& rest : compositions(units - first, parts - 1)) {
      rest.insert(rest.begin(), first);
      out.push_back(std::move(rest));
    }
  return out;
}

struct Mapping {
  double seconds = kNever;
  ExecutionPlan plan;
};

class AutoMapping {
 public:
  AutoMapping(const PlanningProblem& problem, const HybridFlowPrices& prices)
      : problem_(problem),
        prices_(prices),
        devices_(device_count(problem.cluster)),
        unit_(std::max(1, devices_ / kUnits)) {}

  Result<ExecutionPlan> best() {
    std::vector<Mapping> mappings;
    for (const RoleSets& sets_of : partitions(static_cast<int>(problem_.graph.roles.size()))) {
      const int sets = *std::max_element(sets_of.begin(), sets_of.end()) + 1;
      if (sets * unit_ > devices_) continue;
      for (const auto& counts : compositions(devices_ / unit_, sets))
        if (Mapping mapping = price(sets_of, counts); mapping.seconds < kNever)
          mappings.push_back(std::move(mapping));
    }
    std::stable_sort(mappings.begin(), mappings.end(),
                     [](const Mapping& a, const Mapping& b) { return a.seconds < b.seconds; });
    for (const Mapping& mapping : mappings)
      if (prices_.fits(mapping.plan)) return mapping.plan;
    return Status(Code::kInfeasible,
                  cat("no mapping of graph ", problem_.graph.name, " fits ", devices_, " devices"));
  }

 private:
  struct Timed {
    double seconds = kNever;
    CallPlan plan;
  };

  // Algorithm 2: the fastest (tp, pp) of a call on so many devices; remembered by place, since
  // nodes may differ.
  const Timed& fastest(const Call& call, int first, int count) {
    const auto [entry, fresh] = cache_.try_emplace({call.name, first, count});
    if (!fresh) return entry->second;
    const DeviceMesh mesh = *contiguous_mesh(problem_.cluster, first, count);
    const int node = layouts::node_size(problem_, mesh);
    for (int tp = 1; tp <= node; tp *= 2)
      for (const int64_t pp : divisors(count))
        try_sizes(call, mesh, {tp, static_cast<int>(pp)}, &entry->second);
    return entry->second;
  }

  void try_sizes(const Call& call, const DeviceMesh& mesh, layouts::Sizes sizes, Timed* best) {
    auto filled = layouts::fill(problem_, call, mesh, sizes);
    if (!filled.ok() || filled->tp != sizes.tp || filled->pp != sizes.pp) return;
    Strategy s = *filled;
    if (call.kind != CallKind::kGenerate)
      s.micro_batches = layouts::legal_micro_batches(problem_, call, s.dp, 4 * int64_t{s.pp});
    if (call.kind == CallKind::kTrainStep) {
      s.recompute = Recompute::kFull;
      s.sequence_parallel = s.tp > 1;
      s.zero_stage = s.dp > 1 ? 1 : 0;
    }
    const CallPlan plan{call.name, mesh, s};
    if (const auto seconds = prices_.call_seconds(plan); seconds && *seconds < best->seconds)
      *best = {*seconds, plan};
  }

  // Sum over stages of the slowest set.
  Mapping price(const RoleSets& sets_of, const std::vector<int>& counts) {
    std::vector<int> first(counts.size(), 0);
    for (size_t i = 1; i < counts.size(); ++i) first[i] = first[i - 1] + counts[i - 1] * unit_;
    std::vector<double> times(counts.size() * kStages, 0);
    Mapping mapping{0, plan_for(problem_)};
    for (const Call& call : problem_.graph.calls) {
      if (!uses_model(call)) continue;
      const int set = sets_of[static_cast<size_t>(role_index(call.role))];
      const Timed& timed = fastest(call, first[set], counts[set] * unit_);
      if (timed.seconds == kNever) return {};
      times[set * kStages + stage_of(call)] += timed.seconds;
      mapping.plan.calls.push_back(timed.plan);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      double slowest = 0;
      for (size_t set = 0; set < counts.size(); ++set)
        slowest = std::max(slowest, times[set * kStages + stage]);
      mapping.seconds += slowest;
    }
    return mapping;
  }

  int role_index(const RoleId& role) const {
    const auto& roles = problem_.graph.roles;
    for (size_t i = 0; i < roles.size(); ++i)
      if (roles[i].role == role) return static_cast<int>(i);
    BRAID_CHECK(false, cat("role ", role, " is not in the graph"));
  }

  const PlanningProblem& problem_;
  const HybridFlowPrices& prices_;
  const int devices_;
  const int unit_;
  std::map<std::tuple<std::string, int, int>, Timed> cache_;
};

}  // namespace

Result<ExecutionPlan> hybridflow_plan(const PlanningProblem& problem,
                                      const HybridFlowPrices& prices) {
  constexpr size_t kMostRoles = 6;  // 203 partitions
  if (problem.graph.roles.size() > kMostRoles)
    return invalid_input(cat("auto-mapping enumerates partitions of at most ", kMostRoles,
                             " roles, graph ", problem.graph.name, " has ",
                             problem.graph.roles.size()));
  if (problem.graph.roles.empty())
    return invalid_input(cat("graph ", problem.graph.name, " has no roles to map"));
  return AutoMapping(problem, prices).best();
}

}  // namespace braid::inline foreign

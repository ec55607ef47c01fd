#include "schedule/fuse.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "schedule/bounds.h"
#include "schedule/fused_greedy.h"
#include "schedule/list_rule.h"

namespace braid {
namespace {

struct Candidate {
  ClassOrder order;
  double makespan = 0;
  double peak = 0;
};

class FuseSearch final : public optimize::UnitSource {
 public:
  FuseSearch(const OpGraph& graph, const FuseOptions& options)
      : graph_(graph), mirror_(reversed(graph)), options_(options), bound_(lower_bound(graph)) {}

  // Considers a schedule that is known before the search.
  void offer(ClassOrder order) { take({std::move(order), 0, 0}, -1, 0); }

  bool start(int64_t unit) override {
    if (finished()) return false;
    Slot& slot = slots_[unit % optimize::kUnitWindow];
    slot.limit = best_->makespan;
    slot.found.reset();
    return true;
  }

  void run(int64_t unit) override {
    Slot& slot = slots_[unit % optimize::kUnitWindow];
    RandomStream random(options_.seed, static_cast<uint64_t>(unit));
    const bool backwards = random.unit() < 0.4;
    const OpGraph& graph = backwards ? mirror_ : graph_;
    ListSimulator simulator(graph);
    ListRule rule = random_rule(graph, random);
    ListOutcome present = simulator.run(rule, std::numeric_limits<double>::infinity());
    ClassOrder order = simulator.order();
    for (int i = 0; i < 300; ++i) {
      ListRule changed = rule;
      mutate_rule(graph, changed, random);
      const ListOutcome outcome = simulator.run(changed, present.makespan + graph.rounding);
      if (present < outcome) continue;
      present = outcome;
      rule = std::move(changed);
      order = simulator.order();
      if (present.missing == 0 && present.makespan <= bound_ + graph_.rounding) break;
    }
    if (present.missing > 0) return;
    if (backwards)
      for (auto& list : order) std::reverse(list.begin(), list.end());
    slot.found = Candidate{std::move(order), 0, 0};
  }

  void finish(int64_t unit, double elapsed_s) override {
    Slot& slot = slots_[unit % optimize::kUnitWindow];
    if (slot.found) take(std::move(*slot.found), unit, elapsed_s);
  }

  bool finished() const {
    return options_.objective == FuseObjective::kLatency &&
           best_->makespan <= bound_ + graph_.rounding;
  }

  FuseResult result(const PipelineProblem& problem) const {
    FuseResult result;
    result.timeline = timeline_of(graph_, best_->order);
    result.makespan = makespan(result.timeline);
    result.lower_bound = std::min(bound_, result.makespan);
    const std::vector<double> peaks = peak_memory(problem, result.timeline);
    result.peak_memory = *std::max_element(peaks.begin(), peaks.end());
    result.optimal = result.makespan <= bound_ + graph_.rounding;
    result.log = log_;
    return result;
  }

 private:
  struct Slot {
    double limit = 0;
    std::optional<Candidate> found;
  };

  void take(Candidate candidate, int64_t unit, double elapsed_s) {
    candidate.makespan = earliest_starts(graph_, candidate.order).makespan;
    const std::vector<double> peaks = peak_of_order(graph_, candidate.order);
    candidate.peak = *std::max_element(peaks.begin(), peaks.end());
    BRAID_CHECK(candidate.makespan >= 0, "a searched schedule has a circle");
    if (candidate.peak > graph_.memory_limit + graph_.memory_rounding) return;
    if (best_ && !better(candidate, *best_)) return;
    log_.push_back({unit, elapsed_s, candidate.makespan, candidate.peak});
    best_ = std::move(candidate);
  }

  bool better(const Candidate& a, const Candidate& b) const {
    if (a.makespan < b.makespan - graph_.rounding) return true;
    return a.makespan <= b.makespan + graph_.rounding && a.peak < b.peak - graph_.memory_rounding;
  }

  const OpGraph& graph_;
  const OpGraph mirror_;
  const FuseOptions& options_;
  const double bound_;
  std::array<Slot, optimize::kUnitWindow> slots_;
  std::optional<Candidate> best_;
  std::vector<FuseImprovement> log_;
};

// One micro-batch after the other: long, but within any limit that holds one.
ClassOrder serial_order(const OpGraph& graph) {
  ClassOrder order(graph.nodes);
  for (const auto& classes : graph.of_pipeline)
    for (int32_t k = 0; !classes.empty() && k < graph.classes[classes.front()].count; ++k)
      for (const int32_t c : classes) order[graph.classes[c].node].push_back(c);
  return order;
}

}  // namespace

Result<FuseResult> fuse(const PipelineProblem& problem, const FuseOptions& options) {
  BRAID_TRY(check_problem(problem));
  const OpGraph graph = compile_ops(problem);
  FuseSearch search(graph, options);
  search.offer(serial_order(graph));
  search.offer(greedy_order(graph));
  const optimize::UnitReport units = run_units(search, options.units);
  FuseResult result = search.result(problem);
  result.units = units.units;
  if (Status status = verify(problem, result.timeline); !status.ok())
    BRAID_CHECK(false, "a searched schedule is wrong: " + status.message());
  return result;
}

}  // namespace braid

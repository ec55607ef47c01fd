#include "fuse/fuse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "fuse/greedy.h"
#include "fuse/unit.h"

namespace braid::inline fuse {
namespace {

// Units under way at once: few, so that a search of seconds learns from its own results.
constexpr int kWindow = 4;
// Short schedules kept as starts for walks to less memory.
constexpr size_t kRelaxedKept = 8;
// The same with a memory limit, no two of which one is better in both.
constexpr size_t kTradeoffsKept = 24;
// Walks into the limit may take so much longer than the schedule that they start from.
constexpr double kLoosest = 1.1;
// Looks at an op that the greedy start may take: about a second.
constexpr int64_t kGreedyWork = 200'000'000;

class FuseSearch final : public optimize::UnitSource {
 public:
  FuseSearch(const OpGraph& graph, const FuseOptions& options)
      : context_(make_fuse_context(graph)), options_(options) {}

  // Considers a schedule that is known before the search.
  void offer(ClassOrder order) { take(rated(context_.graph, std::move(order)), -1, 0); }

  int window() const override { return kWindow; }

  bool start(int64_t unit) override {
    if (finished()) return false;
    Slot& slot = slots_[unit % kWindow];
    slot = Slot{};
    slot.kind = kind_of(unit);
    slot.input.best = best_;
    if (slot.kind == Kind::kList || slot.kind == Kind::kFreeList) {
      slot.input.aim = aim_of(unit, slot.kind == Kind::kFreeList);
      slot.input.rule = slot.input.aim.free ? free_rule_ : rule_;
    }
    if (slot.kind == Kind::kLowerMemory && unit % 2 == 0) slot.input.relaxed = shortest_start(unit);
    if (slot.kind == Kind::kIntoLimit) slot.input.relaxed = shorter_start(unit);
    return true;
  }

  void run(int64_t unit) override {
    Slot& slot = slots_[unit % kWindow];
    RandomStream random(options_.seed, static_cast<uint64_t>(unit));
    const FuseCandidate& best = *slot.input.best;
    switch (slot.kind) {
      case Kind::kList:
      case Kind::kFreeList:
        if (random.below(2) == 0) slot.input.rule.reset();
        slot.output = list_unit(context_, slot.input.rule, slot.input.aim, random);
        break;
      case Kind::kIntoLimit:
        slot.output = memory_unit(
            context_, *slot.input.relaxed,
            between_relaxed_and_best(slot.input.relaxed->makespan, best.makespan, random.unit()),
            context_.graph.memory_limit, random);
        break;
      case Kind::kLowerMemory: {
        const FuseCandidate& from = slot.input.relaxed ? *slot.input.relaxed : best;
        const double step = 0.4 * random.unit() * random.unit();
        const double cap = std::max(context_.memory_bound, best.peak * (0.999 - step));
        slot.output = memory_unit(context_, from, best.makespan, cap, random);
        break;
      }
      case Kind::kShorten:
        slot.output = makespan_unit(context_, best, context_.graph.memory_limit, random);
        break;
      case Kind::kLoosen:
        slot.output = loosened_unit(context_, best, random);
        break;
      case Kind::kKinds:
        break;
    }
  }

  void finish(int64_t unit, double elapsed_s) override {
    Slot& slot = slots_[unit % kWindow];
    const bool free = slot.kind == Kind::kFreeList;
    if (slot.output.rule) {
      std::optional<RatedRule>& kept = free ? free_rule_ : rule_;
      if (!kept ||
          at_least_as_near(context_, slot.input.aim, slot.output.rule->outcome, kept->outcome))
        kept = slot.output.rule;
    }
    double& failures = failures_[size_t(slot.kind)];
    failures += 1;
    if (!slot.output.found) return;
    const FuseCandidate& found = *slot.output.found;
    const bool shortest_free = free && (relaxed_.empty() || better(found, relaxed_.front()));
    const bool nearer = slot.kind == Kind::kIntoLimit && better(found, *slot.input.relaxed);
    if (context_.limited || slot.kind == Kind::kList) keep_relaxed(found);
    const bool improved = take(std::move(*slot.output.found), unit, elapsed_s);
    if (improved || shortest_free || nearer) failures = 0;
  }

  FuseResult result(const PipelineProblem& problem) const {
    FuseResult result;
    result.timeline = timeline_of(context_.graph, best_->order);
    result.makespan = makespan(result.timeline);
    result.optimal = shortest();
    result.lower_bound = result.optimal ? result.makespan : context_.bound;
    const std::vector<double> peaks = peak_memory(problem, result.timeline);
    result.peak_memory = *std::max_element(peaks.begin(), peaks.end());
    result.log = log_;
    return result;
  }

 private:
  enum class Kind {
    kList,         // rules under the limit
    kFreeList,     // rules without
    kIntoLimit,    // from a schedule without limit into the limit
    kLowerMemory,  // from the best schedule to less memory
    kShorten,      // from the best schedule to a shorter one
    kLoosen,       // the same with a looser limit, and from there into the limit
    kKinds
  };

  struct Slot {
    Kind kind = Kind::kList;
    FuseUnitInput input;
    FuseUnitOutput output;
  };

  bool shortest() const { return best_->makespan <= context_.bound + context_.graph.rounding; }

  bool finished() const {
    if (!shortest()) return false;
    return options_.objective == FuseObjective::kLatency ||
           best_->peak <= context_.memory_bound + context_.graph.memory_rounding;
  }

  Kind kind_of(int64_t unit) const {
    const bool memory = options_.objective == FuseObjective::kMemory;
    if (memory && shortest()) return unit % 3 == 0 ? Kind::kList : Kind::kLowerMemory;
    if (unit >= 4 * kWindow && memory && unit % 2 == 0) return Kind::kLowerMemory;
    if (unit < kWindow) return context_.limited && unit % 2 == 0 ? Kind::kFreeList : Kind::kList;
    return drawn_kind(unit);
  }

  // A kind that has brought nothing for some time is drawn less often.
  Kind drawn_kind(int64_t unit) const {
    struct Share {
      Kind kind;
      double first, least;
    };
    std::vector<Share> shares = {{Kind::kList, 1, 0.5}, {Kind::kShorten, 1, 0.1}};
    if (context_.limited) {
      shares = {{Kind::kList, 0.5, 0.1},
                {Kind::kShorten, 1, 0.1},
                {Kind::kLoosen, 1, 0.1},
                {Kind::kFreeList, 1, 0.3}};
      if (count_shorter() > 0) shares.push_back({Kind::kIntoLimit, 2, 1});
    }
    double total = 0;
    for (Share& share : shares) {
      share.first = std::max(share.least, share.first / (1 + failures_[size_t(share.kind)]));
      total += share.first;
    }
    double place = total * random_unit(options_.seed, uint64_t(unit), UINT64_MAX - 1);
    for (const Share& share : shares)
      if ((place -= share.first) < 0) return share.kind;
    return shares.back().kind;
  }

  // Under the limit the shortest, and where low memory is the objective, then the least memory.
  // Without the limit first the shortest, then schedules that come into the limit and are shorter
  // than the best.
  ListAim aim_of(int64_t unit, bool free) const {
    ListAim aim{.free = free, .makespan = context_.bound};
    if (!free && options_.objective == FuseObjective::kMemory) aim.peak = context_.memory_bound;
    if (!free || relaxed_.empty()) return aim;
    const double place = random_unit(options_.seed, uint64_t(unit), UINT64_MAX - 2);
    aim.makespan = between_relaxed_and_best(relaxed_.front().makespan, best_->makespan, place);
    aim.peak = context_.graph.memory_limit;
    return aim;
  }

  // How many of the kept schedules are shorter than the best.
  size_t count_shorter() const {
    size_t count = 0;
    while (count < relaxed_.size() &&
           relaxed_[count].makespan < best_->makespan - context_.graph.rounding)
      ++count;
    return count;
  }

  // One of the kept schedules that are shorter than the best.
  FuseCandidate shorter_start(int64_t unit) const {
    const double place = random_unit(options_.seed, uint64_t(unit), UINT64_MAX);
    return relaxed_[static_cast<size_t>(double(count_shorter()) * place)];
  }

  // One of the kept schedules that are as short as the best, if there is one.
  std::optional<FuseCandidate> shortest_start(int64_t unit) const {
    size_t count = 0;
    while (count < relaxed_.size() &&
           relaxed_[count].makespan <= best_->makespan + context_.graph.rounding)
      ++count;
    if (count == 0) return std::nullopt;
    return relaxed_[size_t(unit / 2) % count];
  }

  // Between a relaxed schedule's makespan and the last that is still shorter than the best; `place`
  // is from 0 to 1.
  double between_relaxed_and_best(double relaxed, double best, double place) const {
    const double tick = std::max(context_.graph.tick, 4 * context_.graph.rounding);
    const double high = std::clamp(best - tick, relaxed, relaxed * kLoosest);
    const double drawn = relaxed + (high - relaxed) * place;
    if (!(context_.graph.tick > 0)) return drawn;
    return relaxed + tick * std::floor((drawn - relaxed) / tick + 0.5);
  }

  void keep_relaxed(const FuseCandidate& candidate) {
    if (context_.limited) return keep_tradeoff(candidate);
    const auto at = place_in_relaxed(candidate);
    if (at != relaxed_.end() && !better(candidate, *at)) return;  // another one like it
    relaxed_.insert(at, candidate);
    if (relaxed_.size() > kRelaxedKept) relaxed_.pop_back();
  }

  // Under a limit no kept schedule is at least as short as another and takes no more memory.
  void keep_tradeoff(const FuseCandidate& candidate) {
    const OpGraph& graph = context_.graph;
    const auto covers = [&](const FuseCandidate& a, const FuseCandidate& b) {
      return a.makespan <= b.makespan + graph.rounding && a.peak <= b.peak + graph.memory_rounding;
    };
    for (const FuseCandidate& kept : relaxed_)
      if (covers(kept, candidate)) return;
    relaxed_.erase(
        std::remove_if(relaxed_.begin(), relaxed_.end(),
                       [&](const FuseCandidate& kept) { return covers(candidate, kept); }),
        relaxed_.end());
    relaxed_.insert(place_in_relaxed(candidate), candidate);
    if (relaxed_.size() > kTradeoffsKept) relaxed_.pop_back();
  }

  std::vector<FuseCandidate>::iterator place_in_relaxed(const FuseCandidate& candidate) {
    return std::lower_bound(
        relaxed_.begin(), relaxed_.end(), candidate,
        [this](const FuseCandidate& a, const FuseCandidate& b) { return better(a, b); });
  }

  // Whether it is better than all before.
  bool take(FuseCandidate candidate, int64_t unit, double elapsed_s) {
    BRAID_CHECK(candidate.makespan >= 0, "a searched schedule has a circle");
    const OpGraph& graph = context_.graph;
    if (candidate.peak > graph.memory_limit + graph.memory_rounding) return false;
    if (best_ && !better(candidate, *best_)) return false;
    log_.push_back({unit, elapsed_s, candidate.makespan, candidate.peak});
    if (options_.improved) options_.improved(log_.back());
    best_ = std::move(candidate);
    return true;
  }

  bool better(const FuseCandidate& a, const FuseCandidate& b) const {
    const double rounding = context_.graph.rounding;
    if (a.makespan < b.makespan - rounding) return true;
    return a.makespan <= b.makespan + rounding && a.peak < b.peak - context_.graph.memory_rounding;
  }

  const FuseContext context_;
  const FuseOptions& options_;
  std::array<Slot, kWindow> slots_;
  std::optional<FuseCandidate> best_;
  std::vector<FuseCandidate> relaxed_;  // by ascending makespan, then peak; no two alike
  std::optional<RatedRule> rule_, free_rule_;
  std::array<double, size_t(Kind::kKinds)> failures_{};  // of each kind since its last success
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

Result<FuseResult> fuse_pipelines(const PipelineProblem& problem, const FuseOptions& options) {
  BRAID_TRY(check_problem(problem));
  const OpGraph graph = compile_ops(problem);
  FuseSearch search(graph, options);
  search.offer(serial_order(graph));
  if (int64_t(graph.classes.size()) * graph.num_ops <= kGreedyWork)
    search.offer(greedy_order(graph));
  const optimize::UnitReport units = run_units(search, options.units);
  FuseResult result = search.result(problem);
  result.units = units.units;
  if (Status status = verify(problem, result.timeline); !status.ok())
    BRAID_CHECK(false, "a searched schedule is wrong: " + status.message());
  return result;
}

}  // namespace braid::inline fuse

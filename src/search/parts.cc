#include "search/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "plan/validate.h"
#include "program/early_update.h"
#include "program/streamed_update.h"
#include "program/weight_sync.h"
#include "search/fuse.h"

namespace braid::inline search {
namespace {

constexpr int64_t kFurtherPart = 4;  // of the samples of a hand-over: those of one after it

Fusion without_fused_updates(Fusion fusion) {
  fusion.train_schedules = false;
  fusion.seed = Fusion().seed, fusion.units = Fusion().units;
  return fusion;
}

// The edits of a plan that are legal.
class PartEdits {
 public:
  PartEdits(const ExecutionPlan& plan, const PlanningProblem& problem)
      : plan_(plan), problem_(problem) {}

  std::vector<ExecutionPlan> take() { return std::move(out_); }

  void add_fused_updates() {
    if (plan_.fusion.train_schedules) return;
    ExecutionPlan fused = facing_updates(plan_, problem_.graph);
    fused.fusion.train_schedules = true;
    keep(std::move(fused));
  }

  void add_edits_of_fused_updates() {
    if (!plan_.fusion.train_schedules) return;
    keep(without_fused_updates(plan_.fusion));
    Fusion other = plan_.fusion;  // another order
    ++other.seed;
    keep(other);
    other = plan_.fusion;
    other.units = std::max<int64_t>(1, other.units / 2);
    keep(other);
  }

  void add_predicted_lengths() {
    Fusion other = plan_.fusion;
    other.predicted_lengths = !other.predicted_lengths;
    keep(other);
  }

  void add_staleness(int64_t most) {
    for (const int64_t staleness : {int64_t{0}, most}) {
      if (staleness == plan_.staleness) continue;
      ExecutionPlan aged = plan_;
      aged.staleness = staleness;
      if (staleness > 0) aged.fusion = Fusion();  // it excludes all
      keep(std::move(aged));
    }
  }

  void add_hand_overs() {
    for (int part = 0; part <= kHandOverParts / 2; ++part) {
      Fusion handed = plan_.fusion;
      handed.migrate_below_samples = samples_of(problem_) * part / kHandOverParts;
      if (part == 0) handed = without_hand_over(handed);
      std::erase_if(handed.migrate_again_below,
                    [&](int64_t below) { return below >= handed.migrate_below_samples; });
      if (handed.pre_copy_below_samples <= handed.migrate_below_samples)
        handed.pre_copy_below_samples = 0;
      keep(handed);
    }
    if (plan_.fusion.migrate_below_samples > 0) add_ways_of_samples();
    if (plan_.fusion.migrate_below_samples > 0) add_further_hand_overs();
  }

  void add_sync_beside_training() {
    if (!generates_elsewhere(plan_, problem_.graph)) return;
    Fusion other = plan_.fusion;
    other.sync_beside_training = !other.sync_beside_training;
    keep(other);
  }

  void add_beside_scoring() {
    std::vector<int64_t> numbers = numbers_beside_scoring(problem_);
    numbers.push_back(0);
    for (const int64_t first : numbers) {
      Fusion beside = plan_.fusion;
      if (first > 0) beside = without_fused_updates(beside), beside.train_beside_generation = false;
      beside.train_beside_scoring = first;
      keep(beside);
    }
  }

 private:
  void keep(ExecutionPlan edited) {
    if (!(edited == plan_) && validate(edited, problem_).ok()) out_.push_back(std::move(edited));
  }
  void keep(const Fusion& fusion) {
    ExecutionPlan edited = plan_;
    edited.fusion = fusion;
    keep(std::move(edited));
  }

  // One hand-over more, and one less.
  void add_further_hand_overs() {
    Fusion other = plan_.fusion;
    std::vector<int64_t>& again = other.migrate_again_below;
    const int64_t last = again.empty() ? other.migrate_below_samples : again.back();
    again.push_back(last / kFurtherPart);
    keep(other);
    again = plan_.fusion.migrate_again_below;
    if (again.empty()) return;
    again.pop_back();
    keep(other);
  }

  // Whether caches move, and ahead, and beginnings are scored, and parts and multiples of a
  // replica's share that replicas go on with.
  void add_ways_of_samples() {
    Fusion other = plan_.fusion;
    other.migrate_cache = !other.migrate_cache;
    other.pre_copy_below_samples = 0;
    keep(other);
    for (const int64_t below : numbers_of_pre_copies(plan_.fusion)) {
      other = plan_.fusion;
      other.pre_copy_below_samples = below == other.pre_copy_below_samples ? 0 : below;
      keep(other);
    }
    other = plan_.fusion;
    other.scored_prefixes = !other.scored_prefixes;
    keep(other);
    other = plan_.fusion;
    other.train_beside_generation = !other.train_beside_generation;
    if (may_train_beside_generation(problem_.graph)) keep(other);
    other = plan_.fusion;
    for (const CallPlan& entry : plan_.calls) {
      if (find_call(problem_.graph, entry.call)->kind != CallKind::kGenerate) continue;
      const int64_t share = samples_of(problem_) / std::max(1, entry.strategy.dp);
      for (const int64_t most : {int64_t{0}, share / 4, share / 2, share, share * 2}) {
        other.migrate_to_samples = most;
        keep(other);
      }
    }
  }

  const ExecutionPlan& plan_;
  const PlanningProblem& problem_;
  std::vector<ExecutionPlan> out_;
};

}  // namespace

double percent_less(double step_s, double than_s) {
  return std::round(1000 * (1 - step_s / than_s)) / 10;
}

int64_t samples_of(const PlanningProblem& problem) {
  return problem.workload.prompts * problem.workload.samples_per_prompt;
}

PlanParts parts_of(const PlanningProblem& problem, int64_t staleness) {
  const Graph& graph = problem.graph;
  const auto updates = std::count_if(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep;
  });
  const bool draws = generates(graph);
  const bool beside = may_score_beside_update(graph) && !numbers_beside_scoring(problem).empty();
  return {updates == 2, draws, draws ? staleness : 0, draws, beside, draws && updates == 2};
}

bool has_parts(const PlanningProblem& problem) { return !part_names(parts_of(problem, 0)).empty(); }

std::vector<std::string> part_names(const PlanParts& parts) {
  std::vector<std::string> out;
  if (parts.fused_training) out.emplace_back(kFusedUpdates);
  if (parts.hand_over) out.emplace_back(kHandOver);
  if (parts.predicted_lengths) out.emplace_back(kPredicted);
  if (parts.train_beside_scoring) out.emplace_back(kBesideScoring);
  if (parts.sync_beside_training) out.emplace_back(kSyncBeside);
  if (parts.staleness > 0) out.emplace_back(kAhead);
  return out;
}

std::string parts_text(const ExecutionPlan& plan) {
  std::vector<std::string> out;
  if (plan.fusion.train_schedules) out.emplace_back(kFusedUpdates);
  if (plan.fusion.migrate_below_samples > 0) {
    std::string numbers = cat(plan.fusion.migrate_below_samples);
    for (const int64_t below : plan.fusion.migrate_again_below) numbers += cat(", then ", below);
    out.push_back(cat("a hand-over of generation below ", numbers, " samples"));
  }
  if (plan.fusion.train_beside_generation) out.emplace_back("training beside generation");
  if (plan.fusion.predicted_lengths) out.emplace_back(kPredicted);
  if (plan.fusion.train_beside_scoring > 0) out.emplace_back(kBesideScoring);
  if (plan.fusion.sync_beside_training) out.emplace_back(kSyncBeside);
  if (plan.staleness > 0)
    out.push_back(
        cat("rollouts ", plan.staleness, plan.staleness == 1 ? " step" : " steps", " ahead"));
  return join(out, " and ");
}

std::vector<int64_t> numbers_beside_scoring(const PlanningProblem& problem) {
  const int64_t all = problem.workload.minibatches;
  std::vector<int64_t> out;
  for (int64_t first = (all + kMostPartsOfUpdate - 1) / kMostPartsOfUpdate; first < all; first *= 2)
    out.push_back(first);
  return out;
}

std::vector<int64_t> numbers_of_pre_copies(const Fusion& fusion) {
  const int64_t handed = fusion.migrate_below_samples;
  return {2 * handed, handed + (handed + 1) / 2};
}

Fusion without_hand_over(Fusion fusion) {
  const Fusion off;
  fusion.migrate_below_samples = off.migrate_below_samples;
  fusion.migrate_again_below = off.migrate_again_below;
  fusion.migrate_to_samples = off.migrate_to_samples;
  fusion.migrate_cache = off.migrate_cache;
  fusion.scored_prefixes = off.scored_prefixes;
  fusion.pre_copy_below_samples = off.pre_copy_below_samples;
  fusion.train_beside_generation = off.train_beside_generation;
  return fusion;
}

std::vector<ExecutionPlan> part_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                      const PlanParts& parts) {
  PartEdits edits(plan, problem);
  if (parts.fused_training) edits.add_fused_updates();
  edits.add_edits_of_fused_updates();
  if (parts.predicted_lengths) edits.add_predicted_lengths();
  edits.add_staleness(parts.staleness);
  if (parts.hand_over) edits.add_hand_overs();
  if (parts.train_beside_scoring && may_score_beside_update(problem.graph))
    edits.add_beside_scoring();
  if (parts.sync_beside_training) edits.add_sync_beside_training();
  return edits.take();
}

bool allows(const PlanParts& parts, const ExecutionPlan& plan) {
  return (parts.fused_training || !plan.fusion.train_schedules) &&
         (parts.hand_over || plan.fusion.migrate_below_samples == 0) &&
         (parts.predicted_lengths || !plan.fusion.predicted_lengths) &&
         (parts.train_beside_scoring || plan.fusion.train_beside_scoring == 0) &&
         (parts.sync_beside_training || !plan.fusion.sync_beside_training) &&
         plan.staleness <= parts.staleness;
}

int64_t whole_bound_us(const PlanSpace& space, const PlanParts& parts) {
  int64_t after_another = space.fixed_us, work = 0;
  const bool streams = parts.hand_over && may_train_beside_generation(space.problem->graph);
  const Workload& workload = space.problem->workload;
  const int64_t minibatches = std::max<int64_t>(1, workload.minibatches * workload.epochs);
  for (const std::vector<int>& segment : space.segments) {
    int64_t longest_here = 0, work_here = 0;
    bool trains = false;
    for (const int c : segment) {
      const CallSpace& call = space.calls[c];
      const CallKind kind = space.problem->graph.calls[call.call.value].kind;
      if (kind != CallKind::kGenerate && kind != CallKind::kTrainStep) continue;
      const bool drawn = kind == CallKind::kGenerate && parts.predicted_lengths;
      longest_here =
          std::max(longest_here, drawn ? call.least_drawn_us : call.options.front().time_us);
      work_here += call.least_work_us;
      trains = trains || kind == CallKind::kTrainStep;
    }
    const int64_t here = std::max(longest_here, work_here / space.num_devices());
    // The first mini-batch of an update may be trained while others are generated.
    const int64_t hidden = streams && trains ? here / minibatches : 0;
    after_another += here - hidden;
    work += work_here;
  }
  const int64_t beside = std::max(longest_call_us(space), work / space.num_devices());
  return parts.staleness > 0 ? std::min(beside, after_another) : after_another;
}

}  // namespace braid::inline search

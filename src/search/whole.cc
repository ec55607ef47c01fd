#include "search/whole.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"
#include "plan/validate.h"
#include "program/program.h"
#include "search/judge.h"
#include "search/predicted.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

constexpr int kHandOverParts = 8;   // numbers of a hand-over are eighths of the samples, up to half
constexpr int kUsualPart = 4;       // of the samples: a hand-over while plans are compared
constexpr int kLeastPart = 64;      // and of eighths the first, halved down to this part
constexpr double kHopeless = 1.03;  // of the step apart: updates are not fused with a hand-over too
constexpr double kHopelessHanded = 1.1;  // of a step that is known: not improved further
constexpr const char* kFusedUpdates = "fused updates";
constexpr const char* kHandOver = "a hand-over";
constexpr const char* kPredicted = "predicted lengths";
constexpr const char* kAhead = "rollouts ahead";

int64_t samples_of(const PlanningProblem& problem) {
  return problem.workload.prompts * problem.workload.samples_per_prompt;
}

// The last stage of a pipeline may have the lowest devices, which the evaluator does not price.
ExecutionPlan with_runs(ExecutionPlan plan) {
  for (CallPlan& entry : plan.calls)
    std::sort(entry.mesh.devices.begin(), entry.mesh.devices.end());
  return plan;
}

class WholeSearch {
 public:
  WholeSearch(const PlanningProblem& problem, const CallPricer& pricer,
              const Calibration& calibration, const WholeOptions& options)
      : problem_(problem),
        pricer_(pricer),
        calibration_(calibration),
        options_(options),
        judge_(options.judge ? options.judge : remembering(simulator_judge(problem, calibration))) {
  }

  Result<WholeFound> run() {
    BRAID_TRY(search_layouts());
    auto plain = fastest_of(out_.found.judged);
    BRAID_CHECK(plain.has_value(), "a search whose plans do not fit");
    out_.plain = *std::move(plain);
    BRAID_TRY(search_narrower());
    out_.fused_training = out_.plain;
    if (options_.parts.fused_training && !late(kFusedUpdates))
      BRAID_TRY(fuse_updates(JudgedPlan(out_.plain)).status());
    out_.fused = out_.fused_training;
    if (options_.parts.hand_over && !late(kHandOver)) BRAID_TRY(hand_over());
    out_.predicted = out_.fused;
    if (options_.parts.predicted_lengths && !late(kPredicted))
      for (const JudgedPlan* from : {&out_.fused, &out_.plain})
        if (!late()) BRAID_TRY(predict_lengths(JudgedPlan(*from)));
    out_.best = out_.predicted;
    if (options_.parts.staleness > 0 && !late(kAhead)) BRAID_TRY(look_ahead());
    BRAID_TRY(compile(out_.best.plan, problem_).status());  // judges do not verify lists
    return std::move(out_);
  }

 private:
  bool late() const { return options_.search.late && options_.search.late(1); }
  bool late(const char* part) {
    if (!late()) return false;
    out_.skipped.emplace_back(part);
    return true;
  }

  Status search_layouts() {
    if (options_.found) {
      out_.found = *options_.found;
      return ok_status();
    }
    BRAID_ASSIGN(PlanSpace space, make_plan_space(problem_, pricer_, options_.space));
    BRAID_ASSIGN(out_.found, search_plans(space, plain_options(), judge_));
    return ok_status();
  }

  bool accepts(const Verdict& verdict) const {
    return verdict.fits && verdict.peak_bytes <= (1 - out_.found.margin) * verdict.capacity_bytes;
  }

  // None: none is accepted.
  std::optional<JudgedPlan> fastest_of(const std::vector<JudgedPlan>& judged) const {
    const JudgedPlan* best = nullptr;
    for (const JudgedPlan& one : judged)
      if (accepts(one.verdict) && (best == nullptr || one.verdict.step_s < best->verdict.step_s))
        best = &one;
    return best == nullptr ? std::nullopt : std::optional(*best);
  }

  // Searches among plans whose scorers may begin with single samples (program/hand_over.h), each
  // judged with a hand-over; from their best on, and from the best without, the best numbers.
  Status hand_over() {
    SpaceOptions space_options = options_.space;
    space_options.allowed = [this, also = options_.space.allowed](const CallPlan& entry) {
      const CallKind kind = find_call(problem_.graph, entry.call)->kind;
      return (!also || also(entry)) &&
             (kind != CallKind::kInfer || entry.strategy.zero_stage == 0) &&
             (kind != CallKind::kGenerate || entry.strategy.dp > 1);
    };
    const Judge handed = [this](ExecutionPlan plan) {
      plan.fusion.migrate_below_samples = samples_of(problem_) / kUsualPart;
      Result<Verdict> verdict =
          validate(plan, problem_).ok() ? judge_(plan) : Result<Verdict>(refused());
      return verdict.status().code() == Code::kInvalidInput ? refused() : verdict;
    };
    BRAID_TRY(edit_fusion(JudgedPlan(out_.plain)));
    BRAID_TRY(edit_fusion(JudgedPlan(out_.fused_training)));
    for (const SpaceOptions& space : {space_options, together(space_options)}) {
      if (late()) break;
      SearchOptions search = plain_options();
      search.hands_over = true;
      BRAID_ASSIGN(std::optional<JudgedPlan> best, best_in(space, search, handed));
      if (best && best->verdict.step_s < kHopelessHanded * out_.fused.verdict.step_s)
        BRAID_TRY(improve_handed(*std::move(best)));
    }
    return ok_status();
  }

  // A plan that was found with a hand-over and may be better with another one, or fused too.
  Status improve_handed(JudgedPlan found) {
    if (late()) {
      found.plan.fusion.migrate_below_samples = samples_of(problem_) / kUsualPart;  // as judged
      keep_fused(std::move(found));
      return ok_status();
    }
    BRAID_ASSIGN(found.verdict, judge_(found.plan));  // as it is without one
    BRAID_TRY(edit_fusion(found));
    if (!options_.parts.fused_training || fusion_is_hopeless_) return ok_status();
    BRAID_ASSIGN(const std::optional<JudgedPlan> fused, fuse_updates(found));
    return fused ? edit_fusion(*fused) : ok_status();
  }

  // The part of a space in which each call has all devices.
  SpaceOptions together(SpaceOptions space) const {
    const auto all = static_cast<size_t>(device_count(problem_.cluster));
    space.allowed = [all, also = space.allowed](const CallPlan& entry) {
      return (!also || also(entry)) && entry.mesh.devices.size() == all;
    };
    return space;
  }

  // Of searches whose judge knows neither fusion nor staleness.
  SearchOptions plain_options() const {
    SearchOptions out = options_.search;
    out.evaluator_bounds_judge = true;
    return out;
  }

  // Searches among plans with all devices for each call, and among those of which nothing waits on
  // the host: few enough to be searched better in a short time.
  Status search_narrower() {
    SpaceOptions present = options_.space;
    present.allowed_role = [](const RolePlan&) { return false; };
    for (const SpaceOptions& narrower : {together(options_.space), present}) {
      if (late()) break;
      BRAID_ASSIGN(std::optional<JudgedPlan> best, best_in(narrower, plain_options(), judge_));
      if (best && best->verdict.step_s < out_.plain.verdict.step_s) out_.plain = *std::move(best);
    }
    return ok_status();
  }

  // None: no plan fits.
  Result<std::optional<JudgedPlan>> best_in(const SpaceOptions& space_options, SearchOptions search,
                                            const Judge& judge) {
    std::optional<JudgedPlan> none;
    search.bound = false;
    auto space = make_plan_space(problem_, pricer_, space_options);
    if (space.status().code() == Code::kInfeasible) return none;
    BRAID_TRY(space.status());
    const auto found = search_plans(*space, search, judge);
    if (found.status().code() == Code::kInfeasible) return none;
    BRAID_TRY(found.status());
    return fastest_of(found->judged);
  }

  // Of a plan that cannot hand over.
  static Verdict refused() {
    Verdict verdict;
    verdict.step_s = HUGE_VAL;
    verdict.fits = false;
    return verdict;
  }

  // The plan with its updates fused, where they can be.
  Result<std::optional<JudgedPlan>> fuse_updates(const JudgedPlan& start) {
    FusionOptions fusion = options_.fusion;
    fusion.margin = out_.found.margin;
    fusion.allowed = options_.space.allowed;
    fusion.stop = [this] { return late(); };
    const Judge evaluator = evaluator_judge(problem_, pricer_);
    fusion.apart = [&evaluator](const ExecutionPlan& plan) { return evaluator(with_runs(plan)); };
    BRAID_ASSIGN(auto proposal,
                 propose_fusion(problem_, start.plan, start.verdict.step_s, judge_, fusion));
    if (!proposal) return std::optional<JudgedPlan>();
    out_.tried += proposal->judged;
    fusion_is_hopeless_ =
        !proposal->fused || proposal->fused->verdict.step_s > kHopeless * start.verdict.step_s;
    if (proposal->fused && proposal->fused->verdict.step_s < out_.fused_training.verdict.step_s)
      out_.fused_training = *proposal->fused;
    return std::move(proposal->fused);
  }

  // From a plan without a hand-over to its fastest one, or none: from an eighth of the samples on
  // to smaller or to larger numbers, as long as they make a step faster.
  Status edit_fusion(JudgedPlan at) {
    const int64_t samples = samples_of(problem_), first = samples / kHandOverParts;
    BRAID_ASSIGN(const double first_s, hand_over_s(first, &at));
    double last_s = first_s;
    bool smaller = false;
    for (int64_t below = first / 2; below >= samples / kLeastPart; below /= 2) {
      if (at.plan.fusion.migrate_below_samples == 0) break;
      BRAID_ASSIGN(const double step_s, hand_over_s(below, &at));
      if (step_s >= last_s) break;
      last_s = step_s, smaller = true;
    }
    last_s = first_s;
    for (int part = 2; part <= kHandOverParts / 2 && !smaller; ++part) {
      BRAID_ASSIGN(const double step_s, hand_over_s(samples * part / kHandOverParts, &at));
      if (step_s >= last_s) break;
      last_s = step_s;
    }
    keep_fused(std::move(at));
    return ok_status();
  }

  void keep_fused(JudgedPlan plan) {
    if (plan.verdict.step_s < out_.fused.verdict.step_s) out_.fused = std::move(plan);
  }

  // A step of the plan with a hand-over below so many samples, which the plan gets where that is
  // faster; infinite where it cannot have one, or no time is left.
  Result<double> hand_over_s(int64_t below, JudgedPlan* at) {
    ExecutionPlan plan = at->plan;
    plan.fusion.migrate_below_samples = below;
    if (below < 1 || late() || !validate(plan, problem_).ok()) return HUGE_VAL;
    Result<Verdict> verdict = judge_(plan);
    ++out_.tried;
    if (verdict.status().code() == Code::kInvalidInput) return HUGE_VAL;
    BRAID_TRY(verdict.status());
    if (!accepts(*verdict)) return HUGE_VAL;
    const double step_s = verdict->step_s;
    if (step_s < at->verdict.step_s) *at = {std::move(plan), *std::move(verdict)};
    return step_s;
  }

  // What predictions save depends on the draw of lengths, so that several are asked.
  Status predict_lengths(JudgedPlan from) {
    ExecutionPlan plan = from.plan;
    plan.fusion.predicted_lengths = true;
    if (!validate(plan, problem_).ok()) return ok_status();
    const Result<Verdict> verdict = judge_(plan);
    ++out_.tried;
    if (verdict.status().code() == Code::kInvalidInput) return ok_status();
    BRAID_TRY(verdict.status());
    if (!accepts(*verdict) || verdict->step_s >= out_.predicted.verdict.step_s) return ok_status();
    if (late(kPredicted)) return ok_status();
    BRAID_ASSIGN(const PredictedGain gain, predicted_gain(from.plan, problem_, calibration_));
    if (gain.pays()) out_.predicted = {std::move(plan), *verdict};
    return ok_status();
  }

  Status look_ahead() {
    AheadOptions ahead = ahead_options(options_);
    ahead.judge = judge_;
    BRAID_ASSIGN(out_.ahead,
                 propose_ahead(problem_, pricer_, calibration_, out_.best.verdict.step_s, ahead));
    if (out_.ahead && out_.ahead->wins()) out_.best = *out_.ahead->ahead;
    return ok_status();
  }

  const PlanningProblem& problem_;
  const CallPricer& pricer_;
  const Calibration& calibration_;
  const WholeOptions& options_;
  const Judge judge_;
  WholeFound out_;
  bool fusion_is_hopeless_ = false;  // by the last plan whose updates were fused
};

}  // namespace

PlanParts parts_of(const Graph& graph, int64_t staleness) {
  const auto updates = std::count_if(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep;
  });
  const bool draws = generates(graph);
  return {updates == 2, draws, draws ? staleness : 0, draws};
}

bool has_parts(const Graph& graph) { return !part_names(parts_of(graph, 0)).empty(); }

std::vector<std::string> part_names(const PlanParts& parts) {
  std::vector<std::string> out;
  if (parts.fused_training) out.emplace_back(kFusedUpdates);
  if (parts.hand_over) out.emplace_back(kHandOver);
  if (parts.predicted_lengths) out.emplace_back(kPredicted);
  if (parts.staleness > 0) out.emplace_back(kAhead);
  return out;
}

AheadOptions ahead_options(const WholeOptions& options) {
  AheadOptions out;
  out.staleness = options.parts.staleness;
  out.units = options.ahead_units;
  out.threads = options.search.units.threads;
  out.space = options.space;
  out.judged = options.search.judged;
  out.polish = options.search.polish;
  out.judge = options.judge;
  out.stop = options.search.units.stop;
  return out;
}

std::string parts_text(const ExecutionPlan& plan) {
  std::vector<std::string> out;
  if (plan.fusion.train_schedules) out.emplace_back(kFusedUpdates);
  if (plan.fusion.migrate_below_samples > 0)
    out.push_back(
        cat("a hand-over of generation below ", plan.fusion.migrate_below_samples, " samples"));
  if (plan.fusion.predicted_lengths) out.emplace_back(kPredicted);
  if (plan.fusion.train_beside_scoring > 0) out.push_back("training beside scoring");
  if (plan.staleness > 0)
    out.push_back(
        cat("rollouts ", plan.staleness, plan.staleness == 1 ? " step" : " steps", " ahead"));
  return join(out, " and ");
}

std::vector<ExecutionPlan> part_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                      const PlanParts& parts) {
  std::vector<ExecutionPlan> out;
  const auto keep = [&](ExecutionPlan edited) {
    if (!(edited == plan) && validate(edited, problem).ok()) out.push_back(std::move(edited));
  };
  if (parts.fused_training && !plan.fusion.train_schedules) {
    ExecutionPlan fused = facing_updates(plan, problem.graph);
    fused.fusion.train_schedules = true;
    keep(std::move(fused));
  }
  if (plan.fusion.train_schedules) {
    ExecutionPlan apart = plan;
    apart.fusion.train_schedules = false;
    apart.fusion.seed = Fusion().seed, apart.fusion.units = Fusion().units;
    keep(std::move(apart));
  }
  if (parts.predicted_lengths) {
    ExecutionPlan other = plan;
    other.fusion.predicted_lengths = !plan.fusion.predicted_lengths;
    keep(std::move(other));
  }
  for (const int64_t staleness : {int64_t{0}, parts.staleness}) {
    if (staleness == plan.staleness) continue;
    ExecutionPlan aged = plan;
    aged.staleness = staleness;
    if (staleness > 0) aged.fusion = Fusion();  // it excludes both
    keep(std::move(aged));
  }
  if (!parts.hand_over) return out;
  for (int part = 0; part <= kHandOverParts / 2; ++part) {
    ExecutionPlan handed = plan;
    handed.fusion.migrate_below_samples = samples_of(problem) * part / kHandOverParts;
    if (part == 0) handed.fusion.migrate_to_samples = 0, handed.fusion.migrate_cache = true;
    keep(std::move(handed));
  }
  return out;
}

bool allows(const PlanParts& parts, const ExecutionPlan& plan) {
  return (parts.fused_training || !plan.fusion.train_schedules) &&
         (parts.hand_over || plan.fusion.migrate_below_samples == 0) &&
         (parts.predicted_lengths || !plan.fusion.predicted_lengths) &&
         plan.fusion.train_beside_scoring == 0 && plan.staleness <= parts.staleness;
}

int64_t whole_bound_us(const PlanSpace& space, const PlanParts& parts) {
  int64_t after_another = space.fixed_us, work = 0;
  for (const std::vector<int>& segment : space.segments) {
    int64_t longest_here = 0, work_here = 0;
    for (const int c : segment) {
      const CallSpace& call = space.calls[c];
      const CallKind kind = space.problem->graph.calls[call.call.value].kind;
      if (kind != CallKind::kGenerate && kind != CallKind::kTrainStep) continue;
      const bool drawn = kind == CallKind::kGenerate && parts.predicted_lengths;
      longest_here =
          std::max(longest_here, drawn ? call.least_drawn_us : call.options.front().time_us);
      work_here += call.least_work_us;
    }
    after_another += std::max(longest_here, work_here / space.num_devices());
    work += work_here;
  }
  const int64_t beside = std::max(longest_call_us(space), work / space.num_devices());
  return parts.staleness > 0 ? std::min(beside, after_another) : after_another;
}

Result<WholeFound> search_whole(const PlanningProblem& problem, const CallPricer& pricer,
                                const Calibration& calibration, const WholeOptions& options) {
  return WholeSearch(problem, pricer, calibration, options).run();
}

}  // namespace braid::inline search

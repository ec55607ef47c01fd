#include "search/whole.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"
#include "plan/validate.h"
#include "program/program.h"
#include "program/streamed_update.h"
#include "search/judge.h"
#include "search/migration.h"
#include "search/predicted.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

constexpr int kUsualPart = 4;       // of the samples: a hand-over while plans are compared
constexpr int kLeastPart = 64;      // and of eighths the first, halved down to this part
constexpr double kHopeless = 1.03;  // of the step apart: updates are not fused with a hand-over too
constexpr double kHopelessHanded = 1.1;  // of a step that is known: not improved further
// Numbers of `auto` are tried until so many devices have been simulated, but some in any case: all
// of them on 8 devices.
constexpr int64_t kDevicesOfNumbers = 768, kLeastNumbers = 6;
constexpr int kScoringParts[] = {2, 4};  // of the devices: for scorers, beside updates
constexpr int kFurtherHandOvers = 3;     // each at half of the samples of the one before it
constexpr int kGeneratingParts[] = {2};  // likewise: for generations, beside which an update begins

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
    out_.fused = out_.handed = out_.fused_training;
    if (options_.parts.hand_over && !late(kHandOver)) BRAID_TRY(hand_over());
    out_.predicted = out_.fused;
    if (options_.parts.predicted_lengths && !late(kPredicted))
      for (const JudgedPlan* from : {&out_.fused, &out_.plain})
        if (!late()) BRAID_TRY(predict_lengths(JudgedPlan(*from)));
    out_.beside = out_.predicted;
    const bool begins_early = parts_of(problem_, 0).train_beside_scoring;
    if (begins_early && options_.parts.train_beside_scoring && !late(kBesideScoring))
      BRAID_TRY(score_beside());
    out_.best = out_.beside;
    if (options_.parts.sync_beside_training && !late(kSyncBeside))
      BRAID_TRY(sync_beside_training());
    out_.synced = out_.best;
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

  bool accepts(const Verdict& verdict) const { return leaves(verdict, out_.found.margin); }

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
    const Judge handed = judge_with([this](Fusion& fusion) {
      fusion.migrate_below_samples = samples_of(problem_) / kUsualPart;
    });
    BRAID_TRY(edit_fusion(JudgedPlan(out_.plain)));
    BRAID_TRY(edit_fusion(JudgedPlan(out_.fused_training)));
    for (const SpaceOptions& space : {space_options, together(space_options)}) {
      if (late()) break;
      BRAID_ASSIGN(
          std::optional<JudgedPlan> best,
          best_in(space, hiding_options(kHopelessHanded * out_.fused.verdict.step_s), handed));
      if (best && best->verdict.step_s < kHopelessHanded * out_.fused.verdict.step_s)
        BRAID_TRY(improve_handed(*std::move(best)));
    }
    BRAID_TRY(choose_numbers(&out_.fused));
    out_.handed = out_.fused;
    return may_train_beside_generation(problem_.graph) ? train_beside() : ok_status();
  }

  // Searches among plans whose generation has other devices than the update, each judged with an
  // update that begins beside it; of their best, and of plans without, the best numbers.
  Status train_beside() {
    for (const JudgedPlan* from : {&out_.plain, &out_.fused})
      BRAID_TRY(stream_update(JudgedPlan(*from)));
    const Judge streamed = judge_with([this](Fusion& fusion) {
      fusion.migrate_below_samples = samples_of(problem_) / kUsualPart;
      fusion.train_beside_generation = true;
    });
    for (const int part : kGeneratingParts) {
      const int generating = device_count(problem_.cluster) / part;
      if (late() || generating < 2) break;
      BRAID_ASSIGN(std::optional<JudgedPlan> best,
                   best_in(generating_apart(generating),
                           hiding_options(kHopelessHanded * out_.fused.verdict.step_s), streamed));
      if (best) BRAID_TRY(stream_update(*std::move(best)));
    }
    return ok_status();
  }

  // Whether a call that does not learn may have a layout, where the last devices are `apart`.
  using AllowedApart =
      std::function<bool(const CallPlan& entry, CallKind kind, const DeviceMesh& apart)>;
  // The part of a space in which the last devices are apart, and the others learn.
  SpaceOptions apart_from_learning(int apart, AllowedApart allowed) const {
    SpaceOptions space = options_.space;
    const int learning = device_count(problem_.cluster) - apart;
    const DeviceMesh learns = *contiguous_mesh(problem_.cluster, 0, learning);
    const DeviceMesh others = *contiguous_mesh(problem_.cluster, learning, apart);
    space.meshes.push_back(learns), space.meshes.push_back(others);
    space.allowed = [this, learns, others, allowed = std::move(allowed),
                     also = options_.space.allowed](const CallPlan& entry) {
      const CallKind kind = find_call(problem_.graph, entry.call)->kind;
      if (also && !also(entry)) return false;
      return kind == CallKind::kTrainStep ? entry.mesh == learns : allowed(entry, kind, others);
    };
    return space;
  }

  // The last devices generate.
  SpaceOptions generating_apart(int generating) const {
    return apart_from_learning(generating,
                               [](const CallPlan& entry, CallKind kind, const DeviceMesh& draws) {
                                 if (kind == CallKind::kGenerate)
                                   return entry.mesh == draws && entry.strategy.dp > 1;
                                 return kind != CallKind::kInfer || entry.strategy.zero_stage == 0;
                               });
  }

  // The plan with an update that begins beside its generation, with the number of `auto`, or of
  // several.
  Status stream_update(JudgedPlan from) {
    from.plan.fusion.train_schedules = false;
    from.plan.fusion = without_hand_over(from.plan.fusion);
    from.plan.fusion.train_beside_generation = true;
    BRAID_TRY(choose_auto(from.plan, &out_.fused));
    // The more often it is handed over, the sooner groups that have finished are trained.
    for (const int64_t part : {2, 4, 8}) {
      Fusion& often = from.plan.fusion;
      often.migrate_below_samples = samples_of(problem_) / part;
      often.migrate_again_below.clear();
      int64_t below = often.migrate_below_samples / 2;
      for (int more = 0; more < kFurtherHandOvers && below > 0; ++more, below /= 2)
        often.migrate_again_below.push_back(below);
      BRAID_TRY(step_with_part(from.plan, &out_.fused).status());
    }
    return ok_status();
  }

  // A judge of plans with a part that not all can have.
  Judge judge_with(std::function<void(Fusion&)> part) const {
    return [this, part = std::move(part)](ExecutionPlan plan) {
      part(plan.fusion);
      Result<Verdict> verdict =
          validate(plan, problem_).ok() ? judge_(plan) : Result<Verdict>(refused_verdict());
      return verdict.status().code() == Code::kInvalidInput ? refused_verdict() : verdict;
    };
  }

  // The plan with the hand-over that `auto` chooses for it (search/migration.h), on many devices
  // out of fewer numbers, where that is faster.
  Status choose_numbers(JudgedPlan* at) {
    ExecutionPlan plan = at->plan;
    plan.fusion = without_hand_over(plan.fusion);
    BRAID_TRY(choose_auto(std::move(plan), at));
    if (at->plan.fusion.migrate_below_samples == 0) return ok_status();
    // The more is scored ahead, the fewer samples are best left.
    ExecutionPlan begun = at->plan;
    begun.fusion.scored_prefixes = true;
    for (const int64_t part : {1, 2, 4, 8}) {
      ExecutionPlan smaller = begun;
      smaller.fusion.migrate_below_samples /= part;
      if (smaller.fusion.migrate_below_samples > 0)
        BRAID_TRY(step_with_part(std::move(smaller), at).status());
    }
    const ExecutionPlan handed = at->plan;
    for (const int64_t below : numbers_of_pre_copies(handed.fusion)) {
      ExecutionPlan copied = handed;
      copied.fusion.pre_copy_below_samples = below;
      BRAID_TRY(step_with_part(std::move(copied), at).status());
    }
    return ok_status();
  }

  // The plan with the numbers of `auto` takes the place of another where it is faster.
  Status choose_auto(ExecutionPlan plan, JudgedPlan* at) {
    plan.fusion.migrate_below_samples = kAutoMigration;
    if (late() || !validate(plan, problem_).ok()) return ok_status();
    MigrationLimits limits;
    limits.points =
        std::max<int64_t>(kLeastNumbers, kDevicesOfNumbers / device_count(problem_.cluster));
    limits.stop = [this] {
      const auto& asked = options_.search.units.stop;
      return late() || (asked && asked());
    };
    Result<MigrationProposal> chosen = propose_migration(plan, problem_, calibration_, {}, limits);
    if (chosen.status().code() == Code::kInvalidInput) return ok_status();
    BRAID_TRY(chosen.status());
    out_.tried += std::ssize(chosen->curve);
    if (chosen->chosen.below > 0) BRAID_TRY(keep_faster(std::move(chosen->plan), at).status());
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

  // Of searches whose judge lets calls that score hide behind others.
  SearchOptions hiding_options(double limit_s) const {
    SearchOptions out = plain_options();
    out.hides_scoring = true;
    out.limit_s = limit_s;
    return out;
  }

  // Searches among plans with all devices for each call, and among those of which nothing waits on
  // the host: few enough to be searched better in a short time.
  Status search_narrower() {
    SpaceOptions present = options_.space;
    present.allowed_role = [](const RolePlan&) { return false; };
    for (const SpaceOptions& narrower : {together(options_.space), present}) {
      if (late()) break;
      SearchOptions search = plain_options();
      search.limit_s = out_.plain.verdict.step_s;
      BRAID_ASSIGN(std::optional<JudgedPlan> best, best_in(narrower, search, judge_));
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
    return below < 1 ? HUGE_VAL : step_with_part(std::move(plan), at);
  }

  // A step of a plan with a part, which takes the place of another plan where it is faster;
  // infinite where it cannot have the part, or no time is left.
  Result<double> step_with_part(ExecutionPlan plan, JudgedPlan* at) {
    if (late() || !validate(plan, problem_).ok()) return HUGE_VAL;
    ++out_.tried;
    return keep_faster(std::move(plan), at);
  }

  // A step of a plan, which takes the place of another plan where it is faster; infinite where it
  // is refused.
  Result<double> keep_faster(ExecutionPlan plan, JudgedPlan* at) {
    Result<Verdict> verdict = judge_(plan);
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
    if (!accepts(*verdict) || verdict->step_s >= (1 - kNoGain) * out_.predicted.verdict.step_s)
      return ok_status();
    if (late(kPredicted)) return ok_status();
    BRAID_ASSIGN(const PredictedGain gain, predicted_gain(from.plan, problem_, calibration_));
    if (!gain.pays()) return ok_status();
    out_.predicted = {std::move(plan), *verdict};
    return options_.parts.hand_over ? choose_numbers(&out_.predicted) : ok_status();
  }

  // The best plan so far, where weights that come over beside its training make it faster.
  Status sync_beside_training() {
    ExecutionPlan synced = out_.best.plan;
    synced.fusion.sync_beside_training = true;
    if (!compile(synced, problem_).ok()) return ok_status();  // judges do not verify lists
    return step_with_part(std::move(synced), &out_.best).status();
  }

  // Searches among plans whose scorers have other devices than updates, each judged with an update
  // that begins as early as it can; of their best, and of plans without, the best number.
  Status score_beside() {
    for (const JudgedPlan* from : {&out_.plain, &out_.predicted})
      BRAID_TRY(begin_early(JudgedPlan(*from)));
    const Judge early = judge_with([first = numbers_beside_scoring(problem_).front()](
                                       Fusion& fusion) { fusion.train_beside_scoring = first; });
    for (const int part : kScoringParts) {
      const int scoring = device_count(problem_.cluster) / part;
      if (late() || scoring == 0) break;
      BRAID_ASSIGN(
          std::optional<JudgedPlan> best,
          best_in(scoring_apart(scoring), hiding_options(out_.beside.verdict.step_s), early));
      if (best) BRAID_TRY(begin_early(*std::move(best)));
    }
    return ok_status();
  }

  // The last devices score.
  SpaceOptions scoring_apart(int scoring) const {
    return apart_from_learning(scoring, [](const CallPlan& entry, CallKind kind,
                                           const DeviceMesh& scores) {
      return kind != CallKind::kInfer || (entry.mesh == scores && entry.strategy.zero_stage == 0);
    });
  }

  // From a plan to its fastest one with an update that begins early, or none, without the fusions
  // that exclude that: more mini-batches before the update as long as they make a step faster.
  Status begin_early(JudgedPlan at) {
    const bool predicted = at.plan.fusion.predicted_lengths;
    double last_s = HUGE_VAL;
    for (const int64_t first : numbers_beside_scoring(problem_)) {
      ExecutionPlan plan = at.plan;
      plan.fusion = Fusion();
      plan.fusion.predicted_lengths = predicted, plan.fusion.train_beside_scoring = first;
      BRAID_ASSIGN(const double step_s, step_with_part(std::move(plan), &out_.beside));
      if (step_s >= last_s) break;
      last_s = step_s;
    }
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

AheadOptions ahead_options(const WholeOptions& options) {
  AheadOptions out;
  out.staleness = options.parts.staleness;
  out.space = options.space;
  out.search = options.search;
  out.search.units.max_units = options.ahead_units;
  out.judge = options.judge;
  return out;
}

Result<WholeFound> search_whole(const PlanningProblem& problem, const CallPricer& pricer,
                                const Calibration& calibration, const WholeOptions& options) {
  return WholeSearch(problem, pricer, calibration, options).run();
}

}  // namespace braid::inline search

#include "search/migration.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "program/compile_to_price.h"
#include "search/parts.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

constexpr int64_t kParts = 32, kCoarseParts = 8, kFirstNumber = 4;
constexpr int64_t kAllPoints = 96;  // a grid over both numbers, and those beside the best
constexpr double kLittle = 0.01;    // of a step: scoring below is not worth hiding
constexpr double kShown_s = 5e-4;   // of a time: its last digit

bool better(const MigrationPoint& a, const MigrationPoint& b) {
  return a.fits != b.fits ? a.fits : a.step_s < b.step_s;
}

bool is_worth_it(const MigrationPoint& handed, const MigrationPoint& apart) {
  if (handed.fits != apart.fits) return handed.fits;
  return handed.step_s < (1 - kNoGain) * apart.step_s;
}

// How samples move: fusion.migrate_to_samples and migrate_cache.
using Setting = std::pair<int64_t, bool>;

// Prices hand-overs of one plan. No list depends on their numbers, so both programs are made once.
class MigrationSearch {
 public:
  MigrationSearch(const PlanningProblem& problem, const Calibration& calibration,
                  const SimulationOptions& options, MigrationLimits limits = {})
      : problem_(problem),
        calibration_(calibration),
        options_(options),
        limits_(std::move(limits)),
        samples_(problem.workload.prompts * problem.workload.samples_per_prompt) {}

  Status prepare(ExecutionPlan plan) {
    plan.fusion.migrate_below_samples = 1;
    plan.fusion.migrate_again_below.clear();
    plan.fusion.pre_copy_below_samples = 0;
    BRAID_ASSIGN(handed_, compile_to_price(plan, problem_));
    plan.fusion = without_hand_over(plan.fusion);
    BRAID_ASSIGN(const Program apart, compile_to_price(plan, problem_));
    BRAID_ASSIGN(apart_, point(apart, 0));
    return ok_status();
  }

  // Every so-many-th part of the samples.
  Status look(const Setting& setting, int64_t parts) {
    for (int64_t part = 1; part < parts; ++part) BRAID_TRY(add(setting, samples_ * part / parts));
    return ok_status();
  }

  // Numbers beside the fastest: nearer ones each time.
  Status refine(const Setting& setting) {
    if (curves_.count(setting) == 0) return ok_status();
    for (const int64_t parts : {kParts, 4 * kParts}) {
      const int64_t between = std::max<int64_t>(1, samples_ / parts);
      const int64_t at = fastest(setting).below;
      for (int64_t step = -3; step <= 3; ++step) BRAID_TRY(add(setting, at + step * between));
    }
    return ok_status();
  }

  // From how samples move where the plan says it, to the fastest way.
  Status find(const Setting& asked) {
    std::set<int64_t> numbers = {asked.first};
    if (asked.first == 0) numbers = numbers_of_replica();
    const bool all = limits_.points >= kAllPoints;
    for (const int64_t most : numbers)
      BRAID_TRY(all ? look({most, asked.second}, kCoarseParts)
                    : add({most, asked.second}, std::max<int64_t>(1, samples_ / kFirstNumber)));
    BRAID_TRY(look(fastest_setting(), kCoarseParts));
    const int64_t below = fastest(fastest_setting()).below;
    for (const int64_t most : numbers) BRAID_TRY(add({most, asked.second}, below));
    BRAID_TRY(improve(fastest_setting()));
    const Setting best = fastest_setting(), tokens = {best.first, false};
    if (!asked.second) return ok_status();
    BRAID_TRY(look_near(tokens, fastest(best).below));
    return all || fastest_setting() == tokens ? improve(tokens) : ok_status();
  }

  // Of the hand-overs. REQUIRES: some were looked at; a step has at least two samples.
  MigrationPoint fastest(const Setting& setting) const {
    const auto& points = curves_.at(setting);
    return std::min_element(points.begin(), points.end(),
                            [](const auto& a, const auto& b) { return better(a.second, b.second); })
        ->second;
  }
  Setting fastest_setting() const {
    return std::min_element(curves_.begin(), curves_.end(),
                            [&](const auto& a, const auto& b) {
                              return better(fastest(a.first), fastest(b.first));
                            })
        ->first;
  }

  std::vector<MigrationPoint> curve(const Setting& setting) const {
    std::vector<MigrationPoint> out = {apart_};
    for (const auto& [below, point] : curves_.at(setting)) out.push_back(point);
    return out;
  }
  const MigrationPoint& apart() const { return apart_; }
  int64_t samples() const { return samples_; }

  // What a replica may go on with: its share of the batch (0), multiples and parts of it.
  std::set<int64_t> numbers_of_replica() const {
    const int dp = handed_.calls[handed_.scoring.generate.value].strategy.dp;
    const int64_t share = samples_ / dp;
    std::set<int64_t> out = {0};
    for (const int64_t number :
         {share / 8, share / 4, share / 2, share * 3 / 2, share * 2, share * 4})
      if (number > 0 && number < samples_) out.insert(number);
    return out;
  }

 private:
  Result<MigrationPoint> point(const Program& program, int64_t below) const {
    SimOptions simulation;
    simulation.seed = options_.seed;
    simulation.idle_calls = options_.idle_calls;
    simulation.free_prefixes = options_.free_prefixes;
    if (options_.steps.empty()) return point_of_step(program, below, simulation);
    MigrationPoint out{below};
    const auto count = static_cast<double>(options_.steps.size());
    for (const SampleLengths& lengths : options_.steps) {
      simulation.lengths = lengths;
      BRAID_ASSIGN(const MigrationPoint step, point_of_step(program, below, simulation));
      out.generated_s += step.generated_s / count, out.scored_s += step.scored_s / count;
      out.step_s += step.step_s / count, out.fits = out.fits && step.fits;
    }
    return out;
  }

  Result<MigrationPoint> point_of_step(const Program& program, int64_t below,
                                       const SimOptions& simulation) const {
    BRAID_ASSIGN(const Trace trace, simulate(program, problem_, calibration_, simulation));
    MigrationPoint out{below, 0, 0, trace.step_s, memory_problem(trace).empty()};
    const FusedScoring& scoring = handed_.scoring;
    for (const CallSummary& call : trace.calls) {
      if (call.call == scoring.generate) out.generated_s = call.end_s;
      if (std::count(scoring.scorers.begin(), scoring.scorers.end(), call.call) > 0)
        out.scored_s = std::max(out.scored_s, call.end_s);
    }
    return out;
  }

  // A number, and those an eighth of the samples beside it.
  Status look_near(const Setting& setting, int64_t below) {
    const int64_t between = std::max<int64_t>(1, samples_ / kCoarseParts);
    for (const int64_t step : {0, -1, 1}) BRAID_TRY(add(setting, below + step * between));
    return ok_status();
  }

  Status improve(const Setting& setting) {
    BRAID_TRY(look(setting, kCoarseParts));
    return refine(setting);
  }

  Status add(const Setting& setting, int64_t below) {
    if (below <= 0 || below >= samples_) return ok_status();
    const auto curve = curves_.find(setting);
    if (curve != curves_.end() && curve->second.count(below) > 0) return ok_status();
    const bool stopped = priced_ > 0 && limits_.stop && limits_.stop();
    if (stopped || priced_ >= limits_.points) return ok_status();
    ++priced_;
    FusedScoring& scoring = handed_.scoring;
    scoring.below = below, scoring.most = setting.first, scoring.cache = setting.second;
    BRAID_ASSIGN(const MigrationPoint looked_at, point(handed_, below));
    curves_[setting].emplace(below, looked_at);
    return ok_status();
  }

  const PlanningProblem& problem_;
  const Calibration& calibration_;
  const SimulationOptions& options_;
  const MigrationLimits limits_;
  const int64_t samples_;
  Program handed_;
  int64_t priced_ = 0;
  MigrationPoint apart_;
  std::map<Setting, std::map<int64_t, MigrationPoint>> curves_;
};

std::string seconds_text(double seconds) { return cat(fixed_text(seconds, 3), " s"); }

// Why the fastest hand-over is not worth it.
std::string why_not(const PlanningProblem& problem, const MigrationPoint& apart,
                    const MigrationPoint& handed) {
  const double scoring_s = apart.scored_s - apart.generated_s;
  if (apart.fits && !handed.fits) return "no number fits memory";
  if (problem.workload.response.kind == LengthDistribution::Kind::kFixed)
    return "all responses are equally long (workload.response_length), so that none waits for a "
           "longer one";
  if (scoring_s < kLittle * apart.step_s)
    return cat("after the last sample scoring takes ", seconds_text(scoring_s),
               " of a step, and no more can be hidden");
  const auto shown = [](double seconds) { return std::abs(seconds) < kShown_s ? 0 : seconds; };
  const double later_s = shown(handed.generated_s - apart.generated_s);
  const double hidden_s = shown(scoring_s - (handed.scored_s - handed.generated_s));
  return cat("at best it hides ", seconds_text(hidden_s),
             " of scoring, and the replicas that go on take ", seconds_text(later_s), " longer");
}

// At most so many lines of a curve, with the ends and the chosen one.
std::vector<MigrationPoint> thinned(const std::vector<MigrationPoint>& curve, int64_t chosen) {
  constexpr size_t kLines = 12;
  const size_t stride = (curve.size() + kLines - 1) / kLines;
  std::vector<MigrationPoint> out;
  for (size_t i = 0; i < curve.size(); ++i)
    if (i % stride == 0 || curve[i].below == chosen) out.push_back(curve[i]);
  return out;
}

std::string table(const MigrationProposal& proposal) {
  std::string out = "    left    share  generated s   scored s     step s\n";
  for (const MigrationPoint& point : thinned(proposal.curve, proposal.chosen.below)) {
    char line[128];
    std::snprintf(
        line, sizeof(line), "%c %6lld %6.1f %% %12.3f %10.3f %10.3f%s\n",
        point.below == proposal.chosen.below ? '*' : ' ', static_cast<long long>(point.below),
        100.0 * static_cast<double>(point.below) / static_cast<double>(proposal.samples),
        point.generated_s, point.scored_s, point.step_s, point.fits ? "" : "  (no memory)");
    out += line;
  }
  return out;
}

std::string settings_text(const Fusion& fusion) {
  return cat("migrate_to_samples: ", fusion.migrate_to_samples,
             ", migrate_cache: ", fusion.migrate_cache ? "true" : "false",
             fusion.scored_prefixes ? ", scored_prefixes: true" : "",
             fusion.train_beside_generation ? ", train_beside_generation: true" : "");
}

std::string cause(const Status& status) {
  return cause_alone(status, "fusion.migrate_below_samples");
}

}  // namespace

std::string cause_alone(const Status& status, const std::string& key) {
  const std::string& text = status.message();
  const std::string begins = cat(key, ": ");
  const size_t begin = text.rfind(begins, 0) == 0 ? begins.size() : 0;
  return text.substr(begin, text.rfind("; set it ") - begin);
}

MigrationPoint fastest_of(const std::vector<MigrationPoint>& curve) {
  const MigrationPoint fastest = *std::min_element(curve.begin(), curve.end(), better);
  return is_worth_it(fastest, curve.front()) ? fastest : curve.front();
}

Result<std::vector<MigrationPoint>> migration_curve(const ExecutionPlan& plan,
                                                    const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const SimulationOptions& options) {
  MigrationSearch search(problem, calibration, options);
  BRAID_TRY(search.prepare(plan));
  const Setting own = {plan.fusion.migrate_to_samples, plan.fusion.migrate_cache};
  BRAID_TRY(search.look(own, kParts));
  BRAID_TRY(search.refine(own));
  return search.curve(own);
}

Result<MigrationProposal> propose_migration(const ExecutionPlan& plan,
                                            const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options,
                                            const MigrationLimits& limits) {
  MigrationSearch search(problem, calibration, options, limits);
  BRAID_TRY(search.prepare(plan));
  const Fusion& asked = plan.fusion;
  BRAID_TRY(search.find({asked.migrate_to_samples, asked.migrate_cache}));
  const Setting tried = search.fastest_setting();
  const MigrationPoint handed = search.fastest(tried);
  MigrationProposal out{plan, search.apart(), search.samples(), asked, search.curve(tried), {}};
  out.tried.migrate_to_samples = tried.first, out.tried.migrate_cache = tried.second;
  out.tried.migrate_again_below.clear();
  out.tried.pre_copy_below_samples = 0;
  out.plan.fusion = without_hand_over(plan.fusion);
  if (!is_worth_it(handed, search.apart())) {
    out.why_not = why_not(problem, search.apart(), handed);
    return out;
  }
  out.chosen = handed;
  out.tried.migrate_below_samples = handed.below;
  out.plan.fusion = out.tried;
  return out;
}

Result<ExecutionPlan> with_chosen_migration(ExecutionPlan plan, const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options) {
  if (plan.fusion.migrate_below_samples != kAutoMigration) return plan;
  BRAID_ASSIGN(MigrationProposal proposal, propose_migration(plan, problem, calibration, options));
  return std::move(proposal.plan);
}

std::string migration_text(const Result<MigrationProposal>& proposal) {
  if (!proposal.ok())
    return cat("hand-over of generation: not possible: ", cause(proposal.status()), "\n");
  const MigrationProposal& p = *proposal;
  std::string out = cat("hand-over of generation to fewer replicas, by samples left (",
                        settings_text(p.tried), ")\n", table(p));
  if (!p.why_not.empty()) return out + cat("hand-over: not worth it: ", p.why_not, "\n");
  const double gain = 1 - p.chosen.step_s / p.curve.front().step_s;
  return out + cat("hand-over: fusion: {migrate_below_samples: ", p.chosen.below, ", ",
                   settings_text(p.tried), "}: the step takes ", seconds_text(p.chosen.step_s),
                   ", ", fixed_text(100 * gain, 1), " % less", "\n");
}

OrderedJson migration_json(const Result<MigrationProposal>& proposal) {
  if (!proposal.ok()) return {{"possible", false}, {"why_not", cause(proposal.status())}};
  const MigrationProposal& p = *proposal;
  OrderedJson points = OrderedJson::array();
  for (const MigrationPoint& point : p.curve)
    points.push_back({{"below", point.below},
                      {"generated_s", point.generated_s},
                      {"scored_s", point.scored_s},
                      {"step_s", point.step_s},
                      {"fits", point.fits}});
  return {{"possible", true},
          {"migrate_below_samples", p.chosen.below},
          {"migrate_to_samples", p.tried.migrate_to_samples},
          {"migrate_cache", p.tried.migrate_cache},
          {"scored_prefixes", p.tried.scored_prefixes},
          {"train_beside_generation", p.tried.train_beside_generation},
          {"step_s", p.chosen.step_s},
          {"why_not", p.why_not},
          {"curve", points}};
}

}  // namespace braid::inline search

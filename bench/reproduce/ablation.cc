#include "ablation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "base/text.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::reproduce {
namespace {

LengthDistribution lognormal(double mean, int64_t longest) {
  LengthDistribution out;
  out.kind = LengthDistribution::Kind::kLognormal;
  out.mean = mean;
  out.sigma = 0.6;
  out.longest = longest;
  return out;
}

double seconds_or_never(const Result<WholeFound>& found) {
  return found.ok() ? found->best.verdict.step_s : INFINITY;
}

class Ablation {
 public:
  Ablation(const PlanningProblem& problem, const CallPricer& pricer, const Calibration& calibration,
           const SearchBudget& budget, const Clock& clock)
      : problem_(problem),
        pricer_(pricer),
        calibration_(calibration),
        budget_(budget),
        clock_(clock) {
    budget_.judge = remembering(simulator_judge(problem, calibration));
  }

  Result<AblationResult> run() {
    for (const Restriction& restriction : steps_of_space(problem_)) {
      const bool last = restriction.name == whole_space().name;
      Restriction wanted = restriction;
      if (last) wanted.parts.staleness = 1;
      const Result<WholeFound> found = timed(wanted);
      if (found.status().code() != Code::kInfeasible) BRAID_TRY(found.status());
      if (!last) {
        add_step(seconds_or_never(found));
        continue;
      }
      BRAID_TRY(found.status());
      out_.ours = found->synced, out_.stale = found->best;
      for (const JudgedPlan* plan :
           {&found->plain, &found->fused_training, &found->handed, &found->fused, &found->predicted,
            &found->beside, &found->synced, &found->best})
        add_step(plan->verdict.step_s);
    }
    for (const Restriction& system : systems(problem_)) BRAID_TRY(add(system));
    return std::move(out_);
  }

 private:
  // What was found with less is in the space too.
  void add_step(double step_s) {
    out_.steps_s.push_back(out_.steps_s.empty() ? step_s : std::min(step_s, out_.steps_s.back()));
  }

  Result<WholeFound> timed(const Restriction& restriction) {
    const double begin_s = clock_();
    auto found = optimum(problem_, pricer_, calibration_, restriction, budget_);
    const double took_s = clock_() - begin_s;
    if (took_s > out_.longest_search_s)
      out_.longest_search_s = took_s, out_.longest_search = restriction.name;
    return found;
  }

  Status add(const Restriction& system) {
    SystemResult result{system.name, {}, {}};
    Result<WholeFound> found = timed(system);
    if (found.ok()) result.best = std::move(found->best);
    if (!found.ok() && found.status().code() != Code::kInfeasible) return found.status();
    if (const auto plan = published_plan(system.name, problem_); plan.ok()) {
      auto verdict = simulate_plan(*plan, problem_, calibration_, {});
      if (verdict.ok()) result.published = *std::move(verdict);
    }
    out_.systems.push_back(std::move(result));
    return ok_status();
  }

  const PlanningProblem& problem_;
  const CallPricer& pricer_;
  const Calibration& calibration_;
  SearchBudget budget_;
  const Clock& clock_;
  AblationResult out_;
};

}  // namespace

std::vector<AblationPoint> ablation_points() {
  std::vector<AblationPoint> out;
  struct Size {
    int gpus;
    const char* model;
  };
  const Size sizes[] = {{8, "qwen2.5-7b"},  {32, "llama3-70b"}, {128, "qwen2.5-7b"},
                        {32, "llama2-13b"}, {8, "llama2-13b"},  {128, "llama3-70b"},
                        {32, "qwen2.5-7b"}};
  for (const bool long_responses : {false, true})
    for (const char* algorithm : {"ppo", "grpo"})
      for (const Size& size : sizes)
        out.push_back({algorithm, size.model, size.gpus, long_responses});
  return out;
}

Result<PlanningProblem> ablation_problem(const AblationPoint& point) {
  Experiment experiment;
  experiment.algorithm = point.algorithm;
  experiment.actor = experiment.critic = point.model;
  experiment.gpu = "h100-80g";
  experiment.nodes = point.gpus / experiment.devices_per_node;
  experiment.samples_per_prompt = point.algorithm == "grpo" ? 8 : 1;
  experiment.prompts = (point.gpus >= 32 ? 512 : 256) / experiment.samples_per_prompt;
  experiment.prompt_tokens = 256;
  experiment.response = point.long_responses ? lognormal(1500, 4096) : lognormal(256, 1024);
  experiment.old_logprobs = "recompute";
  experiment.score_calls = true;
  experiment.own_engine = true;
  return make_experiment(experiment);
}

std::string words_of(const AblationPoint& point) {
  return cat(point.algorithm, " ", point.model, ", ", point.gpus, " GPUs, ",
             point.long_responses ? "long" : "short");
}

double AblationResult::best_system_s() const {
  double best_s = INFINITY;
  for (const SystemResult& system : systems)
    if (system.best) best_s = std::min(best_s, system.best->verdict.step_s);
  return best_s;
}

const std::vector<std::string>& ablation_steps() {
  static const std::vector<std::string> names = {"one layout",          "+ layouts",
                                                 "+ placement",         "+ offload",
                                                 "+ fused training",    "+ hand-over",
                                                 "+ beside generation", "+ predicted lengths",
                                                 "+ beside scoring",    "+ weights beside training",
                                                 "+ staleness"};
  return names;
}

Calibration perturbed(const Calibration& calibration, uint64_t draw) {
  Calibration out = calibration;
  RandomStream random(29, draw);
  for (const Knob& knob : knobs()) {
    const double factor = random.below(2) == 0 ? 0.8 : 1.2;
    if (knob.stage != FitStage::kMemory) out.offsets[knob.name] += std::log(factor);
  }
  return out;
}

Result<double> regret(const PlanningProblem& problem, const ExecutionPlan& plan,
                      const Calibration& prices, const SearchBudget& budget) {
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, prices));
  BRAID_ASSIGN(const Verdict verdict, simulate_plan(plan, problem, prices, {}));
  double best_s = INFINITY;
  for (const Restriction& system : systems(problem)) {
    const auto found = optimum(problem, pricer, prices, system, budget);
    if (found.status().code() == Code::kInfeasible) continue;
    BRAID_TRY(found.status());
    best_s = std::min(best_s, found->best.verdict.step_s);
  }
  return verdict.fits ? verdict.step_s / best_s : INFINITY;
}

Result<AblationResult> run_ablation(const PlanningProblem& problem, const Calibration& calibration,
                                    const SearchBudget& budget, const Clock& clock) {
  BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
  return Ablation(problem, pricer, calibration, budget, clock).run();
}

}  // namespace braid::reproduce

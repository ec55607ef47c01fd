#include "search/beyond_train.h"

#include <algorithm>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "base/units.h"
#include "cluster/mesh_shape.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "program/expand.h"
#include "search/bench.h"
#include "search/domain.h"
#include "search/judge.h"
#include "search/parts.h"

namespace braid::inline search {
namespace {

// A call or a residency goes back to what is proposed where a step is this share longer at most.
constexpr double kMattersLittle = 0.001;
constexpr int kBeyondRounds = 4;       // of changing a call's layout
constexpr size_t kOfCall = 2;          // layouts of a call that a round takes
constexpr double kHopefulCost = 1.03;  // of a step, by the evaluator: changes that are judged

FurtherAxes axes_of(const ExecutionPlan& plan) {
  FurtherAxes out;
  for (const CallPlan& entry : plan.calls) {
    const FurtherAxes its = axes_of(entry.strategy);
    out.context |= its.context, out.experts |= its.experts;
  }
  return out;
}

// The devices of a call in ascending order: the last stage of a fused pipeline may have the lowest.
DeviceMesh run_of(const CallPlan& entry) {
  DeviceMesh mesh = entry.mesh;
  std::sort(mesh.devices.begin(), mesh.devices.end());
  return mesh;
}

// A plan that breaks a rule of the simulator stops no search.
Judge without_refusals(Judge judge) {
  return [judge = std::move(judge)](const ExecutionPlan& plan) {
    Result<Verdict> verdict = judge(plan);
    return verdict.status().code() == Code::kInvalidInput ? refused_verdict() : verdict;
  };
}

class BeyondSearch {
 public:
  BeyondSearch(const PlanningProblem& problem, const CallPricer& pricer, const JudgedPlan& proposed,
               const BeyondOptions& options)
      : problem_(problem),
        pricer_(pricer),
        options_(options),
        judge_(without_refusals(options.judge)),
        bench_(judge_, options.search.units.threads, options.search.margin) {
    out_.axes = options.space.axes;
    out_.proposed = proposed;
    out_.without_s = proposed.verdict.step_s;
    parts_.staleness = proposed.plan.staleness;
    parts_.fusion = proposed.plan.fusion;
    // A fused order takes long to find: it is for the best plan alone.
    parts_.fusion.train_schedules = false;
    parts_.fusion.seed = Fusion().seed, parts_.fusion.units = Fusion().units;
  }

  Result<BeyondProposal> run() {
    BRAID_TRY(search());
    if (out_.best) BRAID_TRY(fuse());
    if (out_.best) BRAID_TRY(return_to_proposed());
    return std::move(out_);
  }

 private:
  // With the parts of the proposed plan, if it can have them.
  ExecutionPlan with_parts(ExecutionPlan plan) const {
    ExecutionPlan out = plan;
    out.fusion = parts_.fusion, out.staleness = parts_.staleness;
    return validate(out, problem_).ok() ? out : plan;
  }

  SpaceOptions space_options() const {
    SpaceOptions space = options_.space;
    const auto all = static_cast<size_t>(device_count(problem_.cluster));
    std::vector<std::pair<std::string, DeviceMesh>> runs;
    for (const CallPlan& entry : out_.proposed.plan.calls) {
      runs.emplace_back(entry.call, run_of(entry));
      if (is_run(runs.back().second)) space.meshes.push_back(runs.back().second);
    }
    space.allowed = [all, runs = std::move(runs),
                     also = options_.space.allowed](const CallPlan& entry) {
      return (entry.mesh.devices.size() == all ||
              contains(runs, std::pair(entry.call, entry.mesh))) &&
             (!also || also(entry));
    };
    return space;
  }

  // From the proposed plan on, as long as another layout of a call makes a step shorter.
  Status search() {
    auto space = make_plan_space(problem_, pricer_, space_options());
    if (space.status().code() == Code::kInfeasible) return ok_status();
    BRAID_TRY(space.status());
    ExecutionPlan start = out_.proposed.plan;
    for (CallPlan& entry : start.calls) entry.mesh = run_of(entry);
    BRAID_ASSIGN(Choice at, include_plan(*space, start));
    double at_s = out_.proposed.verdict.step_s;
    for (int round = 0; round < kBeyondRounds; ++round) {
      if (round > 0 && options_.search.late && options_.search.late(1)) break;
      const std::vector<Choice> choices = neighbours(*space, at, round == 0);
      std::vector<ExecutionPlan> plans;
      for (const Choice& choice : choices) plans.push_back(with_parts(plan_of(*space, choice)));
      BRAID_TRY(bench_.price(plans));
      const double before_s = at_s;
      for (size_t i = 0; i < plans.size(); ++i) {
        const Verdict& verdict = bench_.verdict(plans[i]);
        if (!bench_.accepts(verdict)) continue;
        note({plans[i], verdict});
        if (verdict.step_s < at_s) at = choices[i], at_s = verdict.step_s;
      }
      if (at_s == before_s) break;
    }
    return ok_status();
  }

  // The best changes of a call's layout by the evaluator, with further axes alone or with any; the
  // best in any case, others where they are hopeful.
  std::vector<Choice> neighbours(const PlanSpace& space, const Choice& at, bool further) const {
    const PlanDomain domain(space);
    PlanState state = domain.state_with(at);
    std::vector<std::pair<PlanCost, Choice>> all;
    for (int c = 0; c < space.num_calls(); ++c) {
      std::vector<std::pair<PlanCost, int>> of_call;
      const CallSpace& call = space.calls[c];
      for (int value = 0; value < domain.num_values(c); ++value)
        if (value != at[c] &&
            (!further || axes_of(call.strategies[call.options[value].strategy]).any()))
          of_call.emplace_back(domain.cost_with(state, c, value), value);
      std::sort(of_call.begin(), of_call.end());
      of_call.resize(std::min(of_call.size(), kOfCall));
      for (const auto& [cost, value] : of_call) {
        all.emplace_back(cost, at);
        all.back().second[c] = value;
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const double most = kHopefulCost * static_cast<double>(state.cost.time_us);
    std::vector<Choice> out;
    for (const auto& [cost, choice] : all)
      if (out.empty() || (std::ssize(out) < options_.search.judged && cost.excess_bytes == 0 &&
                          static_cast<double>(cost.time_us) < most))
        out.push_back(choice);
    return out;
  }

  // An acceptable plan.
  void note(JudgedPlan one) {
    const double step_s = one.verdict.step_s;
    if (!axes_of(one.plan).any())
      out_.without_s = std::min(out_.without_s, step_s);
    else if (!out_.best || step_s < out_.best->verdict.step_s)
      out_.best = std::move(one);
  }

  // None: it is refused, or not acceptable.
  Result<std::optional<JudgedPlan>> judged(ExecutionPlan plan) {
    std::optional<JudgedPlan> none;
    if (!validate(plan, problem_).ok()) return none;
    BRAID_TRY(bench_.price({plan}));
    const Verdict& verdict = bench_.verdict(plan);
    if (!bench_.accepts(verdict)) return none;
    return std::optional(JudgedPlan{std::move(plan), verdict});
  }

  // Its updates, where those of the proposed plan are.
  Status fuse() {
    if (!out_.proposed.plan.fusion.train_schedules) return ok_status();
    ExecutionPlan fused = out_.best->plan;
    fused.fusion = out_.proposed.plan.fusion;
    BRAID_ASSIGN(std::optional<JudgedPlan> one, judged(std::move(fused)));
    if (one) note(*std::move(one));
    return ok_status();
  }

  // What is left differs for a reason.
  Status return_to_proposed() {
    const ExecutionPlan& proposed = out_.proposed.plan;
    const double limit_s = (1 + kMattersLittle) * out_.best->verdict.step_s;
    JudgedPlan at = *out_.best;
    const auto attempt = [&](ExecutionPlan nearer) -> Status {
      if (nearer == at.plan) return ok_status();
      BRAID_ASSIGN(std::optional<JudgedPlan> one, judged(std::move(nearer)));
      if (one && one->verdict.step_s <= limit_s) at = *std::move(one);
      return ok_status();
    };
    for (size_t i = 0; i < at.plan.calls.size(); ++i) {
      ExecutionPlan nearer = at.plan;
      nearer.calls[i] = call_plan(proposed, nearer.calls[i].call);
      BRAID_TRY(attempt(std::move(nearer)));
    }
    ExecutionPlan nearer = at.plan;
    nearer.roles = proposed.roles;
    BRAID_TRY(attempt(std::move(nearer)));
    if (axes_of(at.plan).any())
      out_.best = std::move(at);
    else
      note(std::move(at));
    return ok_status();
  }

  const PlanningProblem& problem_;
  const CallPricer& pricer_;
  const BeyondOptions& options_;
  const Judge judge_;
  PlanBench bench_;
  ExecutionPlan parts_;  // fusion and staleness of plans that are judged
  BeyondProposal out_;
};

}  // namespace

bool BeyondProposal::wins() const {
  return best && best->verdict.step_s < (1 - kLeastGainOfParts) * without_s;
}

FurtherAxes further_axes(const ExecutionPlan& plan, const PlanningProblem& problem,
                         const std::function<bool(const CallPlan&)>& allowed) {
  FurtherAxes out;
  const DeviceMesh all = whole_cluster(problem.cluster);
  for (const CallPlan& entry : plan.calls)
    for (const DeviceMesh& mesh : {run_of(entry), all}) {
      const MeshShape shape = shape_of(problem.cluster, mesh);
      for (const Strategy& strategy : strategies_of(problem, *find_call(problem.graph, entry.call),
                                                    shape.devices, shape.per_node, {true, true})) {
        const FurtherAxes its = axes_of(strategy);
        const bool more = (its.context && !out.context) || (its.experts && !out.experts);
        if (!more || (allowed && !allowed({entry.call, mesh, strategy}))) continue;
        out.context |= its.context, out.experts |= its.experts;
      }
    }
  return out;
}

Result<BeyondProposal> propose_beyond_train(const PlanningProblem& problem,
                                            const CallPricer& pricer, const JudgedPlan& proposed,
                                            const BeyondOptions& options) {
  return BeyondSearch(problem, pricer, proposed, options).run();
}

std::string axes_text(const FurtherAxes& axes) {
  std::vector<std::string> names;
  if (axes.context) names.emplace_back("context");
  if (axes.experts) names.emplace_back("expert");
  return names.empty() ? "" : cat(join(names, " and "), " parallelism");
}

std::string beyond_text(const BeyondProposal& proposal) {
  if (!proposal.wins())
    return cat(axes_text(proposal.axes), ": no plan with it saves 1 % of a step",
               proposal.best
                   ? cat(" (the best: ", format_seconds(proposal.best->verdict.step_s), ")")
                   : std::string(),
               "\n");
  std::string out = cat(
      axes_text(axes_of(proposal.best->plan)), ": ",
      format_double(percent_less(proposal.best->verdict.step_s, proposal.proposed.verdict.step_s)),
      " % less, ", format_seconds(proposal.best->verdict.step_s),
      ", by a plan that differs and that braid train does not execute yet:\n");
  for (const std::string& line : diff(proposal.proposed.plan, proposal.best->plan))
    out += cat("  ", line, "\n");
  return out;
}

OrderedJson beyond_json(const BeyondProposal& proposal) {
  OrderedJson out = {{"tried", axes_text(proposal.axes)},
                     {"pays", proposal.wins()},
                     {"seconds", proposal.seconds}};
  if (!proposal.best) return out;
  const Verdict& verdict = proposal.best->verdict;
  out["axes"] = axes_text(axes_of(proposal.best->plan));
  out["step_s"] = verdict.step_s;
  out["proposed_s"] = proposal.proposed.verdict.step_s;
  out["peak_gib"] = verdict.peak_bytes / kGib;
  out["diff"] = diff(proposal.proposed.plan, proposal.best->plan);
  out["plan"] = plan_json(proposal.best->plan);
  return out;
}

}  // namespace braid::inline search

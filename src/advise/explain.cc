#include "advise/explain.h"

#include <cmath>
#include <set>

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline advise {
namespace {

constexpr int64_t kMostAlternatives = 400;  // that are looked through for other structures
constexpr double kMostlyMoving = 0.3;       // of a call's time
constexpr double kLeastGain = 0.01;  // of a call's time, that a doubled rate must save to bind

struct Rate {
  const char* name;
  void (*double_it)(Node& node);
};

constexpr Rate kRates[] = {
    {"computation",
     [](Node& node) {
       node.gpu.bf16_tflops *= 2;
       node.gpu.fp8_tflops *= 2;
       node.gpu.fp4_tflops *= 2;
     }},
    {"memory bandwidth", [](Node& node) { node.gpu.hbm_gbytes_per_s *= 2; }},
    {"links inside a node",
     [](Node& node) {
       node.gpu.nvlink_gbytes_per_s *= 2;
       node.gpu.pcie_gbytes_per_s *= 2;
     }},
    {"network", [](Node& node) { node.nic_gbps_per_gpu *= 2; }},
};

// What every call of a choice takes alone, on the cluster as it is and with one rate doubled.
class Sensitivity {
 public:
  static Result<Sensitivity> make(const PlanSpace& space, const Choice& choice,
                                  const Calibration& calibration) {
    Sensitivity out;
    const ExecutionPlan plan = plan_of(space, choice);
    BRAID_ASSIGN(out.seconds_, seconds(*space.problem, plan, calibration));
    for (const Rate& rate : kRates) {
      PlanningProblem faster = *space.problem;
      for (Node& node : faster.cluster.nodes) rate.double_it(node);
      BRAID_ASSIGN(std::vector<double> with, seconds(faster, plan, calibration));
      out.with_.push_back(std::move(with));
    }
    return out;
  }

  // Into binds and why.
  void explain(size_t call, CallExplanation* explanation) const {
    explanation->binds = "fixed times";
    explanation->why = "launches, latencies and the host, or times that a profile measured";
    double most = kLeastGain;
    for (size_t r = 0; r < std::size(kRates); ++r) {
      const double gain = 1 - with_[r][call] / seconds_[call];
      if (gain <= most) continue;
      most = gain;
      explanation->binds = kRates[r].name;
      explanation->why =
          cat("at twice the rate it would take ", std::lround(100 * gain), " % less time");
    }
  }

 private:
  static Result<std::vector<double>> seconds(const PlanningProblem& problem,
                                             const ExecutionPlan& plan,
                                             const Calibration& calibration) {
    BRAID_ASSIGN(const CallPricer pricer, CallPricer::make(problem, calibration));
    std::vector<double> out;
    for (const CallPlan& entry : plan.calls) {
      BRAID_ASSIGN(const CallPrice price,
                   pricer.price(*find_call(problem.graph, entry.call), entry.mesh, entry.strategy));
      out.push_back(price.time.total_s);
    }
    return out;
  }

  std::vector<double> seconds_;            // by call
  std::vector<std::vector<double>> with_;  // by rate and call
};

CallPlan entry_of(const PlanSpace& space, int call, int value) {
  Choice choice(static_cast<size_t>(space.num_coordinates()), 0);
  choice[static_cast<size_t>(call)] = value;
  return plan_of(space, choice).calls[static_cast<size_t>(call)];
}

// Whether a faster option exists that would not fit with everything else as it is.
bool faster_does_not_fit(const PlanSpace& space, const Choice& choice, int call) {
  const PlanDomain domain(space);
  PlanState state = domain.state_with(choice);
  for (int value = 0; value < domain.num_values(call); ++value) {
    const PlanCost cost = domain.cost_with(state, call, value);
    if (cost.excess_bytes > 0 && cost.time_us < state.cost.time_us) return true;
  }
  return false;
}

// What of a call lies outside of its own time. False: nothing there binds it.
bool bound_from_outside(const PlanSpace& space, const Choice& choice, int call,
                        CallExplanation* explanation) {
  if (explanation->moving_s > kMostlyMoving * explanation->seconds) {
    explanation->binds = "links";
    explanation->why = "moving weights and sample fields takes more than 30 % of its time";
    return true;
  }
  if (faster_does_not_fit(space, choice, call)) {
    explanation->binds = "memory";
    explanation->why = "a faster option exists and does not fit beside the other calls";
    return true;
  }
  return false;
}

// The digits of the table of the plan (report.h).
std::string seconds_text(double seconds) { return cat(fixed_text(seconds, 3), " s"); }

std::string entry_text(const CallPlan& plan) {
  return cat(mesh_text(plan.mesh), " ", strategy_text(plan.strategy));
}

// What two options of a call must differ in to be alternatives for a person.
std::string structure_text(const CallPlan& plan) {
  Strategy structure = plan.strategy;
  structure.micro_batches = Strategy().micro_batches;
  structure.micro_tokens = Strategy().micro_tokens;
  structure.in_order = Strategy().in_order;
  structure.max_concurrent = Strategy().max_concurrent;
  structure.kv_budget_tokens = Strategy().kv_budget_tokens;
  return cat(mesh_text(plan.mesh), " ", strategy_text(structure));
}

std::vector<CallExplanation::Other> next_best(const PlanSpace& space, const Choice& choice,
                                              int call, int others) {
  const double now_us = static_cast<double>(evaluate(space, assignment_of(space, choice)).time_us);
  std::set<std::string> seen = {
      structure_text(entry_of(space, call, choice[static_cast<size_t>(call)]))};
  std::vector<CallExplanation::Other> out;
  for (const Alternative& other : alternatives(space, choice, call, kMostAlternatives)) {
    if (static_cast<int>(out.size()) == others) break;
    const CallPlan entry = entry_of(space, call, other.value);
    if (!seen.insert(structure_text(entry)).second) continue;
    out.push_back(
        {entry, static_cast<double>(other.cost.time_us) / now_us, other.cost.excess_bytes == 0});
  }
  return out;
}

// "1.2 % longer", of a step.
std::string ratio_text(double ratio) {
  const double percent = std::round(1000 * std::abs(ratio - 1)) / 10;
  if (percent == 0) return "the step takes as long";
  return cat("the step takes ", format_double(percent), ratio > 1 ? " % longer" : " % less");
}

Json entry_json(const CallPlan& plan) {
  return {{"call", plan.call},
          {"mesh", mesh_text(plan.mesh)},
          {"strategy", strategy_text(plan.strategy)}};
}

}  // namespace

Result<std::vector<CallExplanation>> explain(const PlanSpace& space, const Choice& choice,
                                             const Verdict& verdict, int others,
                                             const Calibration& calibration) {
  BRAID_ASSIGN(const Sensitivity sensitivity, Sensitivity::make(space, choice, calibration));
  std::vector<CallExplanation> out;
  const Assignment plan = assignment_of(space, choice);
  const std::vector<CallTiming> times = timeline(space, plan);
  for (int c = 0; c < space.num_calls(); ++c) {
    CallExplanation explanation;
    explanation.chosen = entry_of(space, c, choice[static_cast<size_t>(c)]);
    explanation.call = explanation.chosen.call;
    const double alone_s = static_cast<double>(times[c].end_us - times[c].start_us) / 1e6;
    explanation.seconds = static_cast<size_t>(c) < verdict.call_s.size()
                              ? verdict.call_s[static_cast<size_t>(c)]
                              : alone_s;
    explanation.moving_s = static_cast<double>(overhead_us(space, plan, c)) / 1e6;
    if (!bound_from_outside(space, choice, c, &explanation))
      sensitivity.explain(static_cast<size_t>(c), &explanation);
    explanation.next_best = next_best(space, choice, c, others);
    out.push_back(std::move(explanation));
  }
  return out;
}

std::string explain_text(const std::vector<CallExplanation>& calls) {
  std::string out;
  for (const CallExplanation& call : calls) {
    out += cat(call.call, ": ", seconds_text(call.seconds), " on ", entry_text(call.chosen),
               "\n  limited by ", call.binds, ": ", call.why, "\n");
    for (const auto& other : call.next_best)
      out += cat("  next best: ", entry_text(other.plan), ": ", ratio_text(other.step_ratio),
                 other.fits ? "" : " (does not fit)", "\n");
  }
  return out;
}

Json explain_json(const std::vector<CallExplanation>& calls) {
  Json out = Json::array();
  for (const CallExplanation& call : calls) {
    Json json = entry_json(call.chosen);
    json["seconds"] = call.seconds;
    json["moving_s"] = call.moving_s;
    json["binds"] = call.binds;
    json["why"] = call.why;
    json["next_best"] = Json::array();
    for (const auto& other : call.next_best) {
      Json entry = entry_json(other.plan);
      entry["step_ratio"] = other.step_ratio;
      entry["fits"] = other.fits;
      json["next_best"].push_back(std::move(entry));
    }
    out.push_back(std::move(json));
  }
  return out;
}

}  // namespace braid::inline advise

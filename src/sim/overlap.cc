#include "sim/overlap.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace braid::inline sim {
namespace {

// Which calls make rollouts: those that generate, backwards the producers of what they read, and
// what needs nothing but rollouts and no model (rewards by rules), which runs beside them. What an
// algorithm computes of groups alone is learning's: the ranks that train do it.
std::vector<bool> rollout_calls(const Graph& graph) {
  std::vector<bool> rollout(graph.calls.size(), false);
  std::set<std::string> wanted, made;
  for (size_t i = graph.calls.size(); i-- > 0;) {
    const Call& call = graph.calls[i];
    const bool feeds = std::any_of(call.writes.begin(), call.writes.end(), [&](const Field& field) {
      return wanted.count(field.name) > 0;
    });
    rollout[i] = feeds || call.kind == CallKind::kGenerate;
    if (rollout[i]) wanted.insert(call.reads.begin(), call.reads.end());
  }
  for (size_t i = 0; i < graph.calls.size(); ++i) {
    const Call& call = graph.calls[i];
    rollout[i] =
        rollout[i] || (!uses_model(call) && !call.by_groups &&
                       std::all_of(call.reads.begin(), call.reads.end(),
                                   [&](const auto& field) { return made.count(field) > 0; }));
    if (!rollout[i]) continue;
    for (const Field& field : call.writes) made.insert(field.name);
  }
  return rollout;
}

std::string step_suffix(int step) { return cat("@", step); }

// Calls of an unrolled graph end in "@step".
int32_t step_of(const Call& call) { return std::stoi(call.name.substr(call.name.rfind('@') + 1)); }

// A step's data come in when learning on the step that its weights come from has ended: the fixed
// time of a step on the host does not overlap with that. Stated as fields that train calls write
// and a later fetch reads.
void tie_steps(int64_t lag_steps, Graph* graph) {
  std::map<int64_t, std::vector<std::string>> ended;  // by step
  for (Call& call : graph->calls) {
    const int64_t step = step_of(call);
    if (call.kind == CallKind::kFetch)
      for (const std::string& mark : ended[step - lag_steps]) call.reads.push_back(mark);
    if (call.kind != CallKind::kTrainStep) continue;
    call.writes.push_back({"ended " + call.name, FieldType::kFlag, FieldShape::kPerSample});
    ended[step].push_back(call.writes.back().name);
  }
}

std::set<std::string> unrolled_idle_calls(const OverlapOptions& options) {
  std::set<std::string> out;
  for (size_t step = 0; step < options.idle_calls.size(); ++step)
    for (const std::string& call : options.idle_calls[step])
      out.insert(call + step_suffix(static_cast<int>(step)));
  return out;
}

// When the last call of a step ends.
double step_end_s(const Trace& trace, int step) {
  const std::string suffix = step_suffix(step);
  double end = 0;
  for (const CallSummary& call : trace.calls) {
    const std::string& name = trace.call_names[call.call.value];
    if (name.size() > suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      end = std::max(end, call.end_s);
  }
  return end;
}

}  // namespace

PlanningProblem overlapped_problem(const PlanningProblem& problem, int steps, int64_t staleness) {
  PlanningProblem out = problem;
  const std::vector<bool> rollout = rollout_calls(problem.graph);
  const size_t calls = problem.graph.calls.size();
  const Graph all = unroll(problem.graph, steps);
  out.graph.calls.clear();
  const auto append = [&](int64_t step, bool rollouts) {
    for (size_t i = 0; i < calls && step >= 0 && step < steps; ++i)
      if (rollout[i] == rollouts)
        out.graph.calls.push_back(all.calls[static_cast<size_t>(step) * calls + i]);
  };
  for (int64_t step = 0; step < steps + staleness; ++step) {
    append(step, true);
    append(step - staleness, false);
  }
  tie_steps(staleness + 1, &out.graph);
  return out;
}

ExecutionPlan overlapped_plan(const ExecutionPlan& plan, int steps) {
  ExecutionPlan out = plan;
  out.calls.clear();
  for (int step = 0; step < steps; ++step)
    for (CallPlan entry : plan.calls) {
      entry.call += step_suffix(step);
      out.calls.push_back(std::move(entry));
    }
  return out;
}

Result<OverlapResult> simulate_steps(const ExecutionPlan& plan, const PlanningProblem& problem,
                                     const Calibration& calibration,
                                     const OverlapOptions& options) {
  // The first steps fill the pipeline and the last ones have nothing running ahead of them.
  const int64_t fewest = 2 * plan.staleness + 2;
  if (options.steps < fewest)
    return invalid_input(cat("a staleness of ", plan.staleness, " needs at least ", fewest,
                             " simulated steps, not ", options.steps));
  if (plan.staleness > 0 && !generates(problem.graph))
    return invalid_input(cat("staleness ", plan.staleness, ": graph ", problem.graph.name,
                             " does not generate; use 0"));
  const PlanningProblem steps = overlapped_problem(problem, options.steps, plan.staleness);
  std::vector<int32_t> step_of_call;
  for (const Call& call : steps.graph.calls) step_of_call.push_back(step_of(call));
  BRAID_ASSIGN(const Program program,
               compile(overlapped_plan(plan, options.steps), steps, step_of_call));
  SimOptions simulation = options.simulation;
  simulation.idle_calls = unrolled_idle_calls(options);
  OverlapResult result;
  BRAID_ASSIGN(result.trace, simulate(program, steps, calibration, simulation));
  const auto first = static_cast<int>(plan.staleness);
  const int last = options.steps - 1 - first;
  result.first_s = step_end_s(result.trace, 0);
  result.step_s = (step_end_s(result.trace, last) - step_end_s(result.trace, first)) /
                  static_cast<double>(last - first);
  return result;
}

}  // namespace braid::inline sim

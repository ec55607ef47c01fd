#include "search/simulate.h"

#include <algorithm>

#include "program/program.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

Verdict verdict_of(const Trace& trace, const PlanningProblem& problem) {
  Verdict verdict;
  verdict.step_s = trace.step_s;
  verdict.utilisation = utilisation(trace);
  verdict.reason = memory_problem(trace);
  verdict.fits = verdict.reason.empty();
  for (const DeviceSummary& device : trace.devices)
    note_device(verdict, device.peak_bytes, device.limit_bytes);
  const std::vector<Call>& calls = problem.graph.calls;
  for (const CallSummary& call : trace.calls)
    if (uses_model(calls[call.call.value])) verdict.call_s.push_back(call.seconds());
  return verdict;
}

Result<Trace> trace_of(const ExecutionPlan& plan, const PlanningProblem& problem,
                       const Calibration& calibration, const SimulationOptions& options,
                       bool memory_curve) {
  BRAID_ASSIGN(const Program program, compile(plan, problem));
  SimOptions simulation;
  simulation.seed = options.seed;
  if (!options.steps.empty()) simulation.lengths = options.steps.front();
  simulation.idle_calls = options.idle_calls;
  simulation.memory_curve = memory_curve;
  return simulate(program, problem, calibration, simulation);
}

}  // namespace

Result<Verdict> simulate_plan(const ExecutionPlan& plan, const PlanningProblem& problem,
                              const Calibration& calibration, const SimulationOptions& options) {
  BRAID_ASSIGN(const Trace trace, trace_of(plan, problem, calibration, options, false));
  return verdict_of(trace, problem);
}

Result<DetailedVerdict> simulate_plan_in_detail(const ExecutionPlan& plan,
                                                const PlanningProblem& problem,
                                                const Calibration& calibration,
                                                const SimulationOptions& options) {
  BRAID_ASSIGN(const Trace trace, trace_of(plan, problem, calibration, options, true));
  DetailedVerdict out{verdict_of(trace, problem), {}, {}};
  const std::vector<std::vector<double>> peaks = peaks_by_call(trace);
  for (size_t c = 0; c < trace.calls.size(); ++c)
    if (uses_model(problem.graph.calls[trace.calls[c].call.value])) {
      out.peak_bytes.push_back(peaks[c]);
      out.begin_s.push_back(trace.calls[c].start_s);
    }
  return out;
}

Judge simulator_judge(const PlanningProblem& problem, const Calibration& calibration,
                      const SimulationOptions& options) {
  return [&problem, &calibration, options](const ExecutionPlan& plan) {
    return simulate_plan(plan, problem, calibration, options);
  };
}

}  // namespace braid::inline search

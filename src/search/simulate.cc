#include "search/simulate.h"

#include <algorithm>

#include "program/program.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

// Calls of the trace with a model, in the order of the problem's graph: a program may have another.
std::vector<size_t> model_calls_of(const Trace& trace, const PlanningProblem& problem) {
  std::vector<size_t> out;
  for (const Call& call : problem.graph.calls)
    for (size_t c = 0; uses_model(call) && c < trace.calls.size(); ++c)
      if (trace.call_names[trace.calls[c].call.value] == call.name) out.push_back(c);
  return out;
}

Verdict verdict_of(const Trace& trace, const PlanningProblem& problem) {
  Verdict verdict;
  verdict.step_s = trace.step_s;
  verdict.utilisation = utilisation(trace);
  verdict.reason = memory_problem(trace);
  verdict.fits = verdict.reason.empty();
  for (const DeviceSummary& device : trace.devices)
    note_device(verdict, device.peak_bytes, device.limit_bytes);
  for (const size_t call : model_calls_of(trace, problem))
    verdict.call_s.push_back(trace.calls[call].seconds());
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
  for (const size_t call : model_calls_of(trace, problem)) {
    out.peak_bytes.push_back(peaks[call]);
    out.begin_s.push_back(trace.calls[call].start_s);
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

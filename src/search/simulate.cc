#include "search/simulate.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "optimize/shared_memo.h"
#include "program/compile_to_price.h"
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

constexpr size_t kMostParts = size_t{1} << 21;  // of messages that are kept: 100 MiB

void add_layout(const ParamLayout& layout, std::vector<int64_t>* to) {
  to->insert(to->end(), {layout.dp, layout.tp, layout.pp, layout.interleave,
                         static_cast<int64_t>(layout.sharded), layout.shards, layout.ep,
                         layout.expert_tp, std::ssize(layout.stage_layers)});
  to->insert(to->end(), layout.stage_layers.begin(), layout.stage_layers.end());
  for (const DeviceId device : layout.mesh.devices) to->push_back(device.value);
}

// Many plans have a reallocation in common.
MessagesOf remembering_messages() {
  using Key = std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>>;
  using Known = optimize::SharedMemo<Key, std::vector<Message>>;
  return [known = std::make_shared<Known>(kMostParts)](const RoleId& role, const ParamLayout& from,
                                                       const ParamLayout& to,
                                                       const PlanMessages& plan) {
    Key key{role.value, {}, {}};
    add_layout(from, &std::get<1>(key));
    add_layout(to, &std::get<2>(key));
    if (const auto found = known->find(key)) return *found;
    std::vector<Message> out = plan();
    size_t parts = 0;
    for (const Message& message : out) parts += message.parts.size();
    known->keep(key, out, parts);
    return out;
  };
}

Result<Trace> trace_of(const Program& program, const PlanningProblem& problem,
                       const Calibration& calibration, const SimulationOptions& options,
                       bool memory_curve) {
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
  BRAID_ASSIGN(const Program program, compile(plan, problem));
  BRAID_ASSIGN(const Trace trace, trace_of(program, problem, calibration, options, false));
  return verdict_of(trace, problem);
}

Result<DetailedVerdict> simulate_plan_in_detail(const ExecutionPlan& plan,
                                                const PlanningProblem& problem,
                                                const Calibration& calibration,
                                                const SimulationOptions& options) {
  BRAID_ASSIGN(const Program program, compile(plan, problem));
  BRAID_ASSIGN(const Trace trace, trace_of(program, problem, calibration, options, true));
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
  return [&problem, &calibration, options,
          messages = remembering_messages()](const ExecutionPlan& plan) -> Result<Verdict> {
    BRAID_ASSIGN(const Program program, compile_to_price(plan, problem, messages));
    BRAID_ASSIGN(const Trace trace, trace_of(program, problem, calibration, options, false));
    return verdict_of(trace, problem);
  };
}

}  // namespace braid::inline search

// The simulator: interprets the same per-rank instruction lists as the runtime, with the cost model
// in place of the kernels. Deterministic: a function of its arguments. Pure; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "base/status.h"
#include "plan/problem.h"
#include "pricing/efficiency.h"
#include "program/op.h"
#include "program/program.h"
#include "sim/trace.h"

namespace braid::inline sim {

// Lengths of the samples of one step, in sample order (prompt-major); a recorded run's or drawn.
struct SampleLengths {
  std::vector<int64_t> prompt, response;  // tokens
  // Samples with the same number have the same prompt, whose cache they share; empty: those of one
  // group.
  std::vector<int64_t> prompt_id = {};
  friend bool operator==(const SampleLengths&, const SampleLengths&) = default;
};
// Prompt and response lengths of one step of the workload: a function of the seed.
SampleLengths draw_lengths(const Workload& workload, uint64_t seed);

// What is taken where nobody has measured it (rollout/length_correlation of a run).
inline constexpr double kLengthCorrelation = 0.5;

struct SimOptions {
  uint64_t seed = 0;                     // of the lengths
  std::optional<SampleLengths> lengths;  // of a recorded run in place of drawn ones
  // How the lengths that a plan with fusion.predicted_lengths is told correlate with what they
  // become: of the mean over the responses to a prompt (sim/predicted_lengths.h).
  double length_correlation = kLengthCorrelation;
  // What-if of a generation that is handed over: its scorers (FusedScoring::scorers) have scored
  // all but the last token of the samples that are left when these end, at no cost and with keys
  // and values that take no memory. No way to score samples while they are generated gains more.
  bool free_prefixes = false;
  std::set<std::string> idle_calls;  // training calls that leave their weights as they are
  bool events = false;               // keep Trace::events
  bool memory_curve = false;         // keep DeviceSummary::memory
  std::function<void(Expansion*)> change_ops;  // what-if: edits the ops of a rank before it runs
  int64_t generate_batch_tokens = 2048;        // tokens of one forward of the generation engine
};

// Runs one step. A plan that overruns memory still gives a trace, with `overflow` set: check_memory
// turns that into an error. Errors: lengths that do not match the workload, a device that does not
// support a model's precision.
Result<Trace> simulate(const Program& program, const PlanningProblem& problem,
                       const Calibration& calibration, const SimOptions& options);

// One line per executed instruction of a rank, regions unrolled by the rounds of the trace: the
// order in which the interpreter runs them.
std::string executed_order(const Program& program, const Trace& trace, size_t rank);

// kInfeasible with overflow_text() and a remedy where the trace runs out of memory.
Status check_memory(const Trace& trace);

}  // namespace braid::inline sim

#include "sim/simulate.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/text.h"
#include "sim/step_simulation.h"

namespace braid::inline sim {
namespace {

constexpr uint64_t kPromptStream = 1, kResponseStream = 2;

int64_t draw(const LengthDistribution& lengths, uint64_t seed, uint64_t stream, uint64_t index) {
  double value = lengths.mean;
  if (!lengths.samples.empty()) {
    const double pick =
        random_unit(seed, stream, index) * static_cast<double>(lengths.samples.size());
    value = static_cast<double>(lengths.samples[static_cast<size_t>(pick)]);
  } else if (lengths.kind == LengthDistribution::Kind::kLognormal) {
    const double location = std::log(lengths.mean) - lengths.sigma * lengths.sigma / 2;
    value = std::exp(location + lengths.sigma * random_normal(seed, stream, index));
  }
  const auto tokens = std::max<int64_t>(1, std::llround(value));
  return lengths.longest > 0 ? std::min(tokens, lengths.longest) : tokens;
}

Status check_lengths(const SampleLengths& lengths, const Workload& workload) {
  BRAID_CHECK(lengths.prompt_id.empty() || lengths.prompt_id.size() == lengths.prompt.size(),
              "prompts and their numbers differ in count");
  const int64_t samples = workload.prompts * workload.samples_per_prompt;
  for (const auto* list : {&lengths.prompt, &lengths.response}) {
    const char* name = list == &lengths.prompt ? "prompt" : "response";
    if (static_cast<int64_t>(list->size()) != samples)
      return invalid_input(cat(list->size(), " ", name, " lengths are given, the workload has ",
                               workload.prompts, " x ", workload.samples_per_prompt, " = ", samples,
                               " samples"));
    for (size_t i = 0; i < list->size(); ++i)
      if ((*list)[i] < 1)
        return invalid_input(cat(name, " length ", i, " must be at least 1, is ", (*list)[i]));
  }
  return ok_status();
}

}  // namespace

SampleLengths draw_lengths(const Workload& workload, uint64_t seed) {
  SampleLengths out;
  const int64_t copies = std::max<int64_t>(1, workload.samples_per_prompt);
  for (int64_t i = 0; i < workload.prompts * copies; ++i) {
    const auto sample = static_cast<uint64_t>(i);
    out.prompt.push_back(draw(workload.prompt, seed, kPromptStream, sample / copies));
    out.response.push_back(draw(workload.response, seed, kResponseStream, sample));
  }
  return out;
}

Result<Trace> simulate(const Program& program, const PlanningProblem& problem,
                       const Calibration& calibration, const SimOptions& options) {
  if (program.calls.empty())
    return invalid_input("the program says nothing about devices; compile it from a plan");
  SampleLengths lengths =
      options.lengths ? *options.lengths : draw_lengths(problem.workload, options.seed);
  BRAID_TRY(check_lengths(lengths, problem.workload));
  StepSimulation step(program, problem, calibration, options, std::move(lengths));
  BRAID_TRY(step.prepare());
  return step.run();
}

Status check_memory(const Trace& trace) {
  const std::string problem = memory_problem(trace);
  if (problem.empty()) return ok_status();
  return {Code::kInfeasible,
          cat(problem,
              "; shard or recompute more, keep state on the host, or let 'braid plan' find "
              "a plan that fits or the smallest cluster that has one")};
}

std::string executed_order(const Program& program, const Trace& trace, size_t rank) {
  std::string out;
  const auto& list = program.ranks[rank].instructions;
  size_t begin = 0;
  int64_t round = 0;
  for (size_t i = 0; i < list.size();) {
    out += executed_instruction(program, rank, i);
    if (list[i].kind == OpKind::kRegionBegin) begin = i, round = 0;
    const bool again =
        list[i].kind == OpKind::kRegionEnd && ++round < trace.calls[list[i].call.value].rounds;
    i = again ? begin + 1 : i + 1;
  }
  return out;
}

}  // namespace braid::inline sim

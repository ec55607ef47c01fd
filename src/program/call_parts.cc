#include "program/call_parts.h"

#include "base/status.h"
#include "base/text.h"

namespace braid::inline program {
namespace {

// Of an update whose mini-batches are others than those that were scored in parts, the last part
// has all.
Partition part_of_early(const Program& program, const Partition& whole, CallId call,
                        SamplePart part, bool permuted_anew) {
  if (!permuted_anew) return part_of_update(whole, program.early_update, part);
  if (part == parts_of_call(program, call).back()) return whole;
  return {{}, std::vector<SampleRows>(whole.owned.size())};
}

}  // namespace

std::vector<SampleRows> scored_in_parts(const Program& program, const PartitionedCall& update,
                                        int64_t samples) {
  return scored_in_parts(partition_minibatches(update.samples, update.options),
                         program.early_update, samples);
}

Partition partition_part(const Program& program, const PartitionedCall& call, SamplePart part,
                         const StepParts& step, const Partition* whole) {
  if (begins_early(program, call.call)) {
    Partition anew;
    if (whole == nullptr) anew = partition_samples(call.samples, call.strategy, call.options);
    return part_of_early(program, whole == nullptr ? anew : *whole, call.call, part,
                         step.permuted_anew);
  }
  if (scores_beside(program, call.call))
    return partition_rows(call.samples, step.scored[static_cast<size_t>(part) - 1], call.strategy,
                          call.options);
  const bool known = static_cast<size_t>(part) <= step.handed.size() ||
                     std::ssize(step.handed) == program.scoring.hand_overs();
  BRAID_CHECK(known, cat("part ", static_cast<int>(part), " of ",
                         program.graph.calls[call.call.value].name, " is known after hand-over ",
                         static_cast<int>(part), ", and there were ", step.handed.size()));
  const CallPlacement& generate = program.calls[program.scoring.generate.value];
  const FreeRanks free = free_ranks(program.calls[call.call.value], generate, step.handed);
  return partition_scored(call.samples, call.strategy, call.options, free, step.handed, part);
}

}  // namespace braid::inline program

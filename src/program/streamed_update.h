// An update that begins while others of its samples are still generated
// (fusion.train_beside_generation). Gradients of a mini-batch are sums, in any order: so when a
// generation is handed over, what has finished of the first mini-batch goes on from generation over
// scoring to training. Its passes add up gradients on devices that do not generate; those of the
// others come behind them when all are there, and the optimizer step behind these. Rewards and
// advantages of such samples, whose groups have finished, are found by the ranks that train them.
// Every rank, the simulator and the emulation call these with equal arguments and get equal
// results. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "plan/problem.h"
#include "program/exchange.h"
#include "program/hand_over.h"
#include "program/partition.h"
#include "program/program.h"

namespace braid::inline program {

// The update of the graph that can begin with groups that have finished, and the calls that it
// needs for that: it is the only one, on devices that do not generate; all that it reads comes of
// the data, the generation, calls that score what has finished, and one that compares the samples
// of a group alone by rewards for which no model is asked. The error names the key and what is in
// the way. REQUIRES: the program's generation is handed over.
Result<StreamedUpdate> streamed_update(const Program& program);
Status verify_streamed_update(const Program& program);
// The program of a plan whose update begins so: it has that, and its ranks ask for rewards, too.
// Errors: those of streamed_update(), and what of plan and problem is in the way.
Status stream_update(const ExecutionPlan& plan, const PlanningProblem& problem, Program* program);
// Whether a graph could have one, on devices of its own.
bool may_train_beside_generation(const Graph& graph);

// Whether a call is such an update.
inline bool is_streamed(const Program& program, CallId call) {
  return program.scoring.streamed.is_on() && program.scoring.streamed.update == call;
}
// Whether a part of a call ends before an optimizer step: weights stay what they are.
inline bool ends_before_update(const Program& program, CallId call, SamplePart part) {
  return is_streamed(program, call) && of_hand_over(program, call, part);
}
// The ranks that ask for rewards: those of the call, and who speaks for the samples of the update.
std::vector<DeviceId> asking_ranks(const Program& program, const StreamedUpdate& streamed);

// Fields that come from one call to another in such a part of its samples beside those of
// exchanged_fields(): what else all ranks are told in shares, or compute themselves.
std::vector<std::string> streamed_fields(const Program& program, CallId producer, CallId consumer,
                                         SamplePart part);

// Of some rows those that are trained behind each hand-over so far, [hand-over]: their groups had
// finished by then, not before, and are scored then.
std::vector<SampleRows> streamed_rows(const Program& program, const SampleRows& rows,
                                      const std::vector<PartitionSample>& samples,
                                      const std::vector<HandOver>& handed);
// What the update makes of its samples; `whole`: of all at once.
struct StreamedSamples {
  const Partition& whole;
  const std::vector<PartitionSample>& samples;
  const Strategy& strategy;
  const PartitionOptions& options;
};
// A part of the update: of its first mini-batch those rows, or in the last part all others, with
// the mini-batches behind it. What an early part divides by is an estimate where it depends on
// samples that have not finished: LossTotals::tokens.
Partition partition_streamed(const Program& program, const StreamedSamples& update, SamplePart part,
                             const std::vector<HandOver>& handed);
// The last part, where nothing of the parts before it is of use: each rank has the rows of its own
// again.
Partition partition_again(const Program& program, const StreamedSamples& update,
                          const std::vector<HandOver>& handed);
// All parts together, with mini-batches.
Partition joined_streamed(const std::vector<Partition>& parts);

// The rows whose rewards and advantages each rank finds in a part of the update, [rank]: the groups
// of its rows, each where its first one is trained. `groups`: of all rows of the step.
std::vector<SampleRows> compared_early(const Program& program, const std::vector<int64_t>& groups,
                                       const Partition& part);
// Who asks about which rows in a step: `asked`, but for those that early parts have asked about.
std::vector<SampleRows> asked_with_early(std::vector<SampleRows> asked,
                                         const std::vector<std::vector<SampleRows>>& early);

}  // namespace braid::inline program

// Hands a generation over when few of its samples are left (program/hand_over.h): counts them over
// its replicas, tells all ranks what has finished, and moves the others to the replicas that go on.
// From the first hand-over of a step on the ranks of those count and decide alone, by messages
// (program/hand_over_messages.h): the others score meanwhile, and hear what was decided when they
// come to it. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/transfer_audit.h"
#include "passes/generation.h"
#include "program/hand_over_messages.h"
#include "session/pre_copy_calls.h"
#include "session/step_context.h"

namespace braid::inline session {

class HandOverCalls {
 public:
  // REQUIRES: both outlive this.
  HandOverCalls(const StepContext& step, Generation& generation)
      : step_(step),
        generation_(generation),
        copies_(step, generation),
        below_(step.program.scoring.below) {}

  // A generation is first handed over when at most so many samples are left: alike on all ranks.
  // What is computed does not depend on it.
  int64_t below() const { return below_; }
  void set_below(int64_t samples) { below_ = samples; }
  void begin_step();
  // After a round, on all ranks of the generation: begins a count of what is left, and reads the
  // last one, every few rounds.
  Status tally(CallId call);
  // Whether the last count was low enough: alike on all ranks that generate.
  bool few_left() const { return few_left_; }
  // On all ranks of the job: what has finished is in the store of who has generated it, its lengths
  // everywhere, and what has not is where it goes on. kDeadline, kUnavailable: a message failed.
  Status hand_over(CallId call);
  // Waits until all ranks have heard what was decided in the step.
  Status end_step();
  // Leaves what is on its way: after a failure.
  void abandon();

 private:
  const CallPlacement& placement(CallId call) const { return step_.program.calls[call.value]; }
  DeviceId self() const { return DeviceId{static_cast<int32_t>(step_.rank())}; }
  // What it said at the last hand-over; null before the first.
  const HandOver* last() const;
  int64_t next_below() const;
  // Of a replica that goes on with what all samples of the step have left.
  ReplicaLimits limits(CallId call) const;
  // What a count finds, where it has ended.
  Result<int64_t> counted();
  Status begin_count(CallId call);
  Status begin_count_among(CallId call);
  at::Tensor own_count(CallId call) const;
  // Of these messages what this rank gives to the backend.
  TransferCounts listed(const std::vector<ToldMessage>& messages, int32_t channel) const;
  Status share_progress(CallId call);
  at::Tensor own_progress(CallId call, const SampleRows& rows) const;
  Status tell_progress(CallId call);
  void note_progress(const SampleRows& rows, const at::Tensor& told);
  void note_metrics(const HandOver& handed) const;
  void note_copies(const HandOver& handed) const;
  void note_begun() const;
  // What there is of samples that are left, for those who score their beginnings.
  Status show_begun(CallId call, const HandOver& handed);
  Status end_part(CallId call, const HandOver& handed);
  Status migrate(CallId call, const HandOver& handed);
  // A sample that has got so many new tokens, with what is listed for it.
  Status give(const SampleMove& move, DeviceId to, TransferAudit& audit);
  Status take(const SampleMove& move, DeviceId from, TransferAudit& audit);
  void expect(Transfer transfer, DeviceId peer, int64_t produced, int64_t cached,
              TransferAudit& audit) const;

  const StepContext& step_;
  Generation& generation_;
  PreCopyCalls copies_;  // ahead of the first one
  int64_t below_;
  int64_t rounds_ = 0;  // since the generation began, or was handed over
  Transfers counts_;    // on their way: the sum, or those of replicas
  Transfers counting_;  // and what this rank says to others of its own
  bool few_left_ = false;
  std::vector<SampleProgress> progress_;  // by row, as far as all ranks know
  Transfers sending_;                     // of samples that move
  Transfers telling_;                     // what others may hear later
};

}  // namespace braid::inline session

// Hands a generation over when few of its samples are left (program/hand_over.h): counts them over
// its replicas, tells all ranks what has finished, and moves the others to the replicas that go on.
// Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "comm/communicator.h"
#include "comm/transfer_audit.h"
#include "passes/generation.h"
#include "session/step_context.h"

namespace braid::inline session {

class HandOverCalls {
 public:
  // REQUIRES: both outlive this.
  HandOverCalls(const StepContext& step, Generation& generation)
      : step_(step), generation_(generation), below_(step.program.scoring.below) {}

  // A generation is handed over when at most so many samples are left: alike on all ranks. What is
  // computed does not depend on it.
  int64_t below() const { return below_; }
  void set_below(int64_t samples) { below_ = samples; }
  void begin_step();
  // After a round, on all ranks of the generation: begins a count of what is left, and reads the
  // last one, every few rounds.
  Status tally(CallId call);
  // Whether the last count was low enough: alike on all ranks of the generation.
  bool few_left() const { return few_left_; }
  // On all ranks of the job: what has finished is in the store of who has generated it, its lengths
  // everywhere, and what has not is where it goes on. kDeadline, kUnavailable: a message failed.
  Status hand_over(CallId call);
  // Leaves what is on its way: after a failure.
  void abandon();

 private:
  Result<std::vector<SampleProgress>> share_progress(CallId call);
  Status migrate(CallId call, const HandOver& handed, const std::vector<SampleProgress>& progress);
  // A sample that has got so many new tokens, with what is listed for it.
  Status give(size_t row, int64_t produced, DeviceId to, TransferAudit& audit);
  Status take(size_t row, int64_t produced, DeviceId from, TransferAudit& audit);
  void expect(Transfer transfer, DeviceId peer, int64_t produced, int64_t cached,
              TransferAudit& audit) const;

  const StepContext& step_;
  Generation& generation_;
  int64_t below_;
  int64_t rounds_ = 0;
  at::Tensor count_;  // on its way
  std::optional<Pending> counting_;
  bool few_left_ = false;
  std::vector<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid::inline session

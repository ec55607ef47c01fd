#include "schedule/schedule.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace braid {
namespace {

using Kind = ScheduleOp::Kind;

std::string describe(const ScheduleOp& op) {
  return cat(op.kind == Kind::kForward ? "forward" : "backward", " of micro-batch ", op.micro_batch,
             " on stage ", op.stage);
}

// What has run: [stage][micro-batch].
struct Progress {
  explicit Progress(const Schedule& schedule)
      : forward(schedule.stages, std::vector<bool>(schedule.micro_batches)), backward(forward) {}

  std::vector<std::vector<bool>> forward, backward;

  std::vector<std::vector<bool>>& done(Kind kind) {
    return kind == Kind::kForward ? forward : backward;
  }

  // Whether the neighbouring stage has delivered this op's input.
  bool ready(const ScheduleOp& op) const {
    if (op.kind == Kind::kForward) {
      return op.stage == 0 || forward[op.stage - 1][op.micro_batch];
    }
    const auto next = static_cast<size_t>(op.stage) + 1;
    return next == backward.size() || backward[next][op.micro_batch];
  }
};

Status verify_stage(const Schedule& schedule, int32_t stage) {
  Progress progress(schedule);
  for (const ScheduleOp& op : schedule.per_stage[stage]) {
    if (op.stage != stage || op.micro_batch < 0 || op.micro_batch >= schedule.micro_batches) {
      return invalid_input(cat("list of stage ", stage, " has a ", describe(op)));
    }
    if (op.kind == Kind::kBackward && !progress.forward[stage][op.micro_batch]) {
      return invalid_input(cat(describe(op), " comes before its forward"));
    }
    std::vector<bool>& done = progress.done(op.kind)[stage];
    if (done[op.micro_batch]) return invalid_input(cat(describe(op), " comes twice"));
    done[op.micro_batch] = true;
  }
  for (int32_t m = 0; m < schedule.micro_batches; ++m) {
    if (!progress.backward[stage][m]) {
      return invalid_input(cat(describe({Kind::kBackward, stage, m}), " is missing"));
    }
  }
  return {};
}

// Runs every stage as far as its inputs allow until nothing moves.
Status verify_no_deadlock(const Schedule& schedule) {
  Progress progress(schedule);
  std::vector<size_t> next(schedule.stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t stage = 0; stage < schedule.stages; ++stage) {
      const auto& ops = schedule.per_stage[stage];
      while (next[stage] < ops.size() && progress.ready(ops[next[stage]])) {
        const ScheduleOp& op = ops[next[stage]++];
        progress.done(op.kind)[stage][op.micro_batch] = true;
        moved = true;
      }
    }
  }
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    if (next[stage] < schedule.per_stage[stage].size()) {
      return invalid_input(cat(describe(schedule.per_stage[stage][next[stage]]), " waits forever"));
    }
  }
  return {};
}

Schedule empty_schedule(int32_t stages, int32_t micro_batches) {
  BRAID_CHECK(stages >= 1 && micro_batches >= 0, cat(stages, " x ", micro_batches));
  return {stages, micro_batches, std::vector<std::vector<ScheduleOp>>(stages)};
}

}  // namespace

Schedule gpipe(int32_t stages, int32_t micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  for (int32_t stage = 0; stage < stages; ++stage) {
    auto& ops = schedule.per_stage[stage];
    for (int32_t m = 0; m < micro_batches; ++m) ops.push_back({Kind::kForward, stage, m});
    for (int32_t m = micro_batches - 1; m >= 0; --m) ops.push_back({Kind::kBackward, stage, m});
  }
  return schedule;
}

Schedule one_f_one_b(int32_t stages, int32_t micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  for (int32_t stage = 0; stage < stages; ++stage) {
    auto& ops = schedule.per_stage[stage];
    const int32_t warm_up = std::min(stages - 1 - stage, micro_batches);
    for (int32_t m = 0; m < warm_up; ++m) ops.push_back({Kind::kForward, stage, m});
    for (int32_t m = 0; m < micro_batches; ++m) {
      if (m + warm_up < micro_batches) ops.push_back({Kind::kForward, stage, m + warm_up});
      ops.push_back({Kind::kBackward, stage, m});
    }
  }
  return schedule;
}

Status verify(const Schedule& schedule) {
  if (schedule.stages < 1 || schedule.micro_batches < 0 ||
      schedule.per_stage.size() != static_cast<size_t>(schedule.stages)) {
    return invalid_input(
        cat("schedule of ", schedule.stages, " stages has ", schedule.per_stage.size(), " lists"));
  }
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    BRAID_TRY(verify_stage(schedule, stage));
  }
  return verify_no_deadlock(schedule);
}

int32_t peak_in_flight(const Schedule& schedule, int32_t stage) {
  int32_t alive = 0, peak = 0;
  for (const ScheduleOp& op : schedule.per_stage[stage]) {
    alive += op.kind == Kind::kForward ? 1 : -1;
    peak = std::max(peak, alive);
  }
  return peak;
}

}  // namespace braid

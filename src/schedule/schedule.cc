#include "schedule/schedule.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace braid::inline schedule {
namespace {

using Kind = ScheduleOp::Kind;

std::string describe(const Schedule& schedule, const ScheduleOp& op) {
  return cat(op.kind == Kind::kForward ? "forward" : "backward", " of micro-batch ", op.micro_batch,
             " on stage ", op.stage, schedule.chunks > 1 ? cat(", chunk ", op.chunk) : "");
}

int32_t part_of(const Schedule& schedule, const ScheduleOp& op) {
  return op.chunk * schedule.stages + op.stage;
}

// What has run: [part][micro-batch].
struct Progress {
  explicit Progress(const Schedule& schedule)
      : forward(schedule.stages * schedule.chunks, std::vector<bool>(schedule.micro_batches)),
        backward(forward) {}

  std::vector<std::vector<bool>> forward, backward;

  std::vector<std::vector<bool>>& done(Kind kind) {
    return kind == Kind::kForward ? forward : backward;
  }

  // Whether the neighbouring part has delivered this op's input.
  bool ready(const Schedule& schedule, const ScheduleOp& op) {
    const int32_t before = waits_for_part(schedule, op);
    return before < 0 || done(op.kind)[before][op.micro_batch];
  }
};

bool in_range(const Schedule& schedule, const ScheduleOp& op) {
  return op.micro_batch >= 0 && op.micro_batch < schedule.micro_batches && op.chunk >= 0 &&
         op.chunk < schedule.chunks && (schedule.backward || op.kind == Kind::kForward);
}

Status verify_stage(const Schedule& schedule, int32_t stage) {
  Progress progress(schedule);
  for (const ScheduleOp& op : schedule.per_stage[stage]) {
    if (op.stage != stage || !in_range(schedule, op))
      return invalid_input(cat("list of stage ", stage, " has a ", describe(schedule, op)));
    const int32_t part = part_of(schedule, op);
    if (op.kind == Kind::kBackward && !progress.forward[part][op.micro_batch])
      return invalid_input(cat(describe(schedule, op), " comes before its forward"));
    std::vector<bool>& done = progress.done(op.kind)[part];
    if (done[op.micro_batch]) return invalid_input(cat(describe(schedule, op), " comes twice"));
    done[op.micro_batch] = true;
  }
  const Kind last = schedule.backward ? Kind::kBackward : Kind::kForward;
  for (int32_t chunk = 0; chunk < schedule.chunks; ++chunk)
    for (int32_t m = 0; m < schedule.micro_batches; ++m) {
      const ScheduleOp op{last, stage, m, chunk};
      if (!progress.done(last)[part_of(schedule, op)][m])
        return invalid_input(cat(describe(schedule, op), " is missing"));
    }
  return {};
}

// Runs every stage as far as its inputs allow until nothing moves; `visit` sees each op in an order
// that respects all waits. Returns how far each stage came.
std::vector<size_t> run(const Schedule& schedule,
                        const std::function<void(const ScheduleOp&, size_t)>& visit) {
  Progress progress(schedule);
  std::vector<size_t> next(schedule.stages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t stage = 0; stage < schedule.stages; ++stage) {
      const auto& ops = schedule.per_stage[stage];
      while (next[stage] < ops.size() && progress.ready(schedule, ops[next[stage]])) {
        const ScheduleOp& op = ops[next[stage]];
        visit(op, next[stage]++);
        progress.done(op.kind)[part_of(schedule, op)][op.micro_batch] = true;
        moved = true;
      }
    }
  }
  return next;
}

Status verify_no_deadlock(const Schedule& schedule) {
  const auto reached = run(schedule, [](const ScheduleOp&, size_t) {});
  for (int32_t stage = 0; stage < schedule.stages; ++stage) {
    const auto& ops = schedule.per_stage[stage];
    if (reached[stage] < ops.size())
      return invalid_input(cat(describe(schedule, ops[reached[stage]]), " waits forever"));
  }
  return {};
}

Schedule empty_schedule(int32_t stages, int32_t micro_batches) {
  BRAID_CHECK(stages >= 1 && micro_batches >= 0, cat(stages, " x ", micro_batches));
  return {stages, micro_batches, std::vector<std::vector<ScheduleOp>>(stages), 1, true};
}

// The k-th forward or backward of a stage: groups of `stages` micro-batches pass one chunk after
// the other.
ScheduleOp interleaved_op(const Schedule& schedule, Kind kind, int32_t stage, int32_t k) {
  const int32_t group = schedule.stages * schedule.chunks, within = k % group;
  const int32_t chunk = within / schedule.stages;
  return {kind, stage, k / group * schedule.stages + within % schedule.stages,
          kind == Kind::kForward ? chunk : schedule.chunks - 1 - chunk};
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

Schedule interleaved_one_f_one_b(int32_t stages, int32_t chunks, int32_t micro_batches) {
  if (chunks == 1) return one_f_one_b(stages, micro_batches);
  BRAID_CHECK(chunks > 1 && micro_batches % stages == 0, cat(chunks, " x ", micro_batches));
  Schedule schedule = empty_schedule(stages, micro_batches);
  schedule.chunks = chunks;
  const int32_t total = micro_batches * chunks;
  for (int32_t stage = 0; stage < stages; ++stage) {
    auto& ops = schedule.per_stage[stage];
    const int32_t warm_up = std::min((stages - 1 - stage) * 2 + (chunks - 1) * stages, total);
    for (int32_t k = 0; k < warm_up; ++k)
      ops.push_back(interleaved_op(schedule, Kind::kForward, stage, k));
    for (int32_t k = 0; k < total; ++k) {
      if (k + warm_up < total)
        ops.push_back(interleaved_op(schedule, Kind::kForward, stage, k + warm_up));
      ops.push_back(interleaved_op(schedule, Kind::kBackward, stage, k));
    }
  }
  return schedule;
}

Schedule forward_only(int32_t stages, int32_t chunks, int32_t micro_batches) {
  Schedule schedule = empty_schedule(stages, micro_batches);
  schedule.chunks = chunks;
  schedule.backward = false;
  for (int32_t stage = 0; stage < stages; ++stage)
    for (int32_t first = 0; first < micro_batches; first += stages)
      for (int32_t chunk = 0; chunk < chunks; ++chunk)
        for (int32_t m = first; m < std::min(first + stages, micro_batches); ++m)
          schedule.per_stage[stage].push_back({Kind::kForward, stage, m, chunk});
  return schedule;
}

int32_t waits_for_part(const Schedule& schedule, const ScheduleOp& op) {
  const int32_t part = part_of(schedule, op);
  if (op.kind == Kind::kForward) return part - 1;
  return part + 1 < schedule.stages * schedule.chunks ? part + 1 : -1;
}

OpTimes replay(const Schedule& schedule, const std::function<double(const ScheduleOp&)>& duration,
               double lag) {
  OpTimes times;
  for (const auto& ops : schedule.per_stage) {
    times.start.emplace_back(ops.size());
    times.end.emplace_back(ops.size());
  }
  const size_t parts = static_cast<size_t>(schedule.stages) * schedule.chunks;
  std::vector<std::vector<double>> done[2];
  for (auto& kind : done) kind.assign(parts, std::vector<double>(schedule.micro_batches, 0));
  run(schedule, [&](const ScheduleOp& op, size_t at) {
    auto& ended = done[op.kind == Kind::kForward ? 0 : 1];
    const int32_t before = waits_for_part(schedule, op);
    double start = at == 0 ? 0 : times.end[op.stage][at - 1];
    if (before >= 0) {
      const double message = before % schedule.stages == op.stage ? 0 : lag;
      start = std::max(start, ended[before][op.micro_batch] + message);
    }
    times.start[op.stage][at] = start;
    times.end[op.stage][at] = start + duration(op);
    ended[part_of(schedule, op)][op.micro_batch] = times.end[op.stage][at];
    times.makespan = std::max(times.makespan, times.end[op.stage][at]);
  });
  return times;
}

Status verify(const Schedule& schedule) {
  if (schedule.stages < 1 || schedule.micro_batches < 0 || schedule.chunks < 1 ||
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

}  // namespace braid::inline schedule

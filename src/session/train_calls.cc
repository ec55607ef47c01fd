#include "session/train_calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "program/fused.h"
#include "program/streamed_update.h"
#include "session/steps_ahead.h"

namespace braid::inline session {

Training& TrainCalls::open(CallId call) {
  return trainings_
      .try_emplace(call, step_.config, step_.program.graph, step_.models.roles(), step_.store,
                   step_.record.metrics, step_.record.ledger, step_.record.trained)
      .first->second;
}

Result<TrainWork> TrainCalls::work_of(const Call& call) {
  const CallId id = step_.id_of(call);
  const SamplePart part = part_of(id);
  BRAID_ASSIGN(TrainWork work,
               step_.work.training(id, step_.rows.partition(id, step_.position.step, part)));
  work.more = ends_before_update(step_.program, id, part);
  return work;
}

SamplePart TrainCalls::part_of(CallId call) const {
  return is_streamed(step_.program, call) ? streamed_ : SamplePart::kAll;
}

// Where it has nothing of them in the end, as where samples were dropped, none were.
void TrainCalls::note_early(CallId call, SamplePart part) {
  const std::vector<MiniBatch>& minibatches =
      step_.rows.partition(call, step_.position.step, part).minibatches;
  if (ends_before_update(step_.program, call, part)) {
    if (!minibatches.empty()) trained_early_ += std::ssize(minibatches.front().rows);
    return;
  }
  const bool begun = !minibatches.empty() && minibatches.front().begun;
  if (step_.leads(call))
    step_.record.metrics["rollout/trained_early"].add(
        static_cast<double>(begun ? trained_early_ : 0));
}

// Whose metrics say how old the samples are.
bool TrainCalls::is_first(const Call& call) const {
  for (const Call& other : step_.program.graph.calls)
    if (other.kind == CallKind::kTrainStep) return other.name == call.name;
  return false;
}

Status TrainCalls::check_age(const Call& call) {
  const int64_t step = step_.position.step;
  BRAID_TRY(check_versions(step_.store, step_.program, step));
  if (is_first(call) && step_.leads(step_.id_of(call)))
    note_versions(step_.store, step_.store.all_rows(), step_.program, step, step_.record.metrics);
  return ok_status();
}

Status TrainCalls::begin(const Call& call, SamplePart part) {
  if (most_age(step_.program) > 0) BRAID_TRY(check_age(call));
  streamed_ = part;
  BRAID_ASSIGN(TrainWork work, work_of(call));
  const CallId id = step_.id_of(call);
  open(id).begin(call, std::move(work), step_.position.step);
  if (!is_streamed(step_.program, id)) return go_on(call, part);
  note_early(id, part);
  return ok_status();
}

// The mini-batch before which a part of the call's samples ends; none: behind the last.
std::optional<size_t> TrainCalls::end_of(CallId call, SamplePart part) {
  const bool all = !begins_early(step_.program, call);
  if (all || !end_of_part(step_.program.early_update, part)) return std::nullopt;
  size_t end = 0;
  for (const SamplePart each : parts_of_call(step_.program, call))
    if (each <= part)
      end += step_.rows.partition(call, step_.position.step, each).minibatches.size();
  return end;
}

Status TrainCalls::go_on(const Call& call, SamplePart part) {
  const CallId id = step_.id_of(call);
  if (is_streamed(step_.program, id)) {
    streamed_ = part;
    BRAID_ASSIGN(TrainWork work, work_of(call));
    open(id).go_on(std::move(work));
    note_early(id, part);
  }
  open(id).stop_before(end_of(id, part));
  return ok_status();
}

Status TrainCalls::resume(const Call& call, SamplePart part, const TrainingProgress& progress) {
  streamed_ = part;
  BRAID_ASSIGN(TrainWork work, work_of(call));
  const CallId id = step_.id_of(call);
  open(id).resume(call, std::move(work), step_.position.step, progress);
  return is_streamed(step_.program, id) ? ok_status() : go_on(call, part);
}

std::map<std::string, TrainingProgress> TrainCalls::progress() const {
  std::map<std::string, TrainingProgress> out;
  for (const auto& [call, training] : trainings_) out[step_.call(call).name] = training.progress();
  return out;
}

void TrainCalls::abandon() {
  for (auto& [call, training] : trainings_) training.abandon();
}

Status TrainCalls::run_passes(const Call& call) {
  Training& training = open(step_.id_of(call));
  while (true) {
    BRAID_ASSIGN(const bool fits, training.reserve());
    // Whether one sample fits is tried.
    if (fits || !cut_smaller(step_, call, step_.rows, training.open_minibatch(), kDeclared,
                             part_of(step_.id_of(call))))
      return training.pass();
    BRAID_ASSIGN(TrainWork work, work_of(call));
    training.recut(std::move(work));
  }
}

// Where memory is short: those of one after those of the other, each in the order of its own.
Status TrainCalls::run_one_by_one(const FusedCalls& fused) {
  for (const CallId id : fused.calls) {
    const Call& call = step_.call(id);
    if (Training& training = open(id); training.fused()) {
      BRAID_ASSIGN(TrainWork work, work_of(call));
      training.recut(std::move(work));
    }
    BRAID_TRY(run_passes(call));
  }
  return ok_status();
}

// The passes of both calls in their common order.
Status TrainCalls::run_fused(const FusedCalls& fused) {
  std::array<Training*, 2> both = {&open(fused.calls[0]), &open(fused.calls[1])};
  if (both[0]->fused() && both[1]->fused()) {
    BRAID_ASSIGN(const bool fits, reserve_fused(fused));
    if (!fits) run_apart(fused, kDeclared);
  }
  if (step_.rows.frame(fused.calls[0]).fused == nullptr) return run_one_by_one(fused);
  return run_fused_passes(step_.program, fused, self(), both);
}

// Whether what the passes of both declare together is free on all ranks.
Result<bool> TrainCalls::reserve_fused(const FusedCalls& fused) {
  const std::array<const Training*, 2> both = {&at(fused.calls[0]), &at(fused.calls[1])};
  if (both[0]->done() && both[1]->done()) return true;
  std::array<std::optional<DeclaredPasses>, 2> declared;
  for (int c = 0; c < 2; ++c)
    if (!both[c]->done()) declared[c].emplace(both[c]->declared_passes());
  int64_t most = 0;
  for (const FusedPass& pass : fused_passes(step_.program, fused, self())) {
    if (!declared[pass.call]) continue;
    const auto& other = declared[1 - pass.call];
    const int64_t beside = other ? other->held() : 0;
    for (const Op& op : both[pass.call]->work().ops.ops)
      if (op.minibatch == static_cast<int32_t>(both[pass.call]->open_minibatch()) &&
          is_of_pass(op, pass.op))
        most = std::max(most, beside + declared[pass.call]->run(op));
  }
  const TrainWork& work = both[0]->work();
  return finds_bytes(most, work.role->model->options().device, work.groups.call);
}

void TrainCalls::run_apart(const FusedCalls& fused, const std::string& why) {
  if (step_.rows.frame(fused.calls[0]).fused == nullptr) return;
  for (const CallId call : fused.calls) step_.rows.run_alone(call);
  const Call &first = step_.call(fused.calls[0]), &second = step_.call(fused.calls[1]);
  ++step_.record.repeats[first.name];
  if (step_.leads(fused.calls[0]))
    log_warning(cat("calls ", first.name, " and ", second.name, ": out of memory (",
                    why.empty() ? kElsewhere : why,
                    "); from here on their passes run one after the other "
                    "(fusion.train_schedules)"));
}

Status TrainCalls::agree(const Call& call) {
  const CallId id = step_.id_of(call);
  Training& training = open(id);
  BRAID_TRY(training.agree());
  if (!training.ran_out()) return ok_status();
  const std::string why = training.why_ran_out();
  const bool streamed = is_streamed(step_.program, id);
  if (streamed && training.open_minibatch() == 0) step_.rows.train_again();
  if (training.fused()) {  // alone it may fit
    run_apart(step_.program.fused[place_in_pair(step_.program, id).entry], why);
  } else if (!cut_smaller(step_, call, step_.rows, training.open_minibatch(), why, part_of(id))) {
    return step_.talk.fail_alike(step_.all_take_part(id), too_little_memory(why),
                                 why.empty() ? ok_status() : too_little_memory(why));
  }
  BRAID_ASSIGN(TrainWork work, work_of(call));
  training.repeat(std::move(work));
  return ok_status();
}

// Where a refusal stops the run no rank comes to the way of the weights.
Status TrainCalls::update(const Call& call) {
  step_.models.note_update(call.role);
  const CallId id = step_.id_of(call);
  const Status updated = open(id).update();
  const bool refused = updated.code() == Code::kStopped;
  return refused ? step_.talk.fail_alike(step_.all_take_part(id), updated, updated) : updated;
}

}  // namespace braid::inline session

// The passes of a session's train calls, each call's alone or woven with another's, and what a lack
// of memory makes of them.
#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "program/fused.h"
#include "session/session.h"

namespace braid::inline session {

Training& Session::open_training(CallId call) {
  return trainings_
      .try_emplace(call, config_, program_.graph, models_->roles(), store_, metrics_, ledger_,
                   trained_)
      .first->second;
}

Status Session::run_passes(const Call& call) {
  Training& training = open_training(id_of(call));
  while (true) {
    BRAID_ASSIGN(const bool fits, training.reserve());
    // Whether one sample fits is tried.
    if (fits || !cut_smaller(call, rows_, training.open_minibatch(), kDeclared))
      return training.pass();
    BRAID_ASSIGN(TrainWork work, train_work(call));
    training.recut(std::move(work));
  }
}

// The passes of both calls in their common order; where memory is short, those of one after those
// of the other, each in the order of its own.
Status Session::run_woven(const FusedCalls& fused) {
  std::array<Training*, 2> both = {&open_training(fused.calls[0]), &open_training(fused.calls[1])};
  if (both[0]->woven() && both[1]->woven()) {
    BRAID_ASSIGN(const bool fits, reserve_woven(fused));
    if (!fits) run_apart(fused, kDeclared);
  }
  if (rows_.frame(fused.calls[0]).fused == nullptr) {
    for (int c = 0; c < 2; ++c) {
      const Call& call = program_.graph.calls[fused.calls[c].value];
      if (both[c]->woven()) {
        BRAID_ASSIGN(TrainWork work, train_work(call));
        both[c]->recut(std::move(work));
      }
      BRAID_TRY(run_passes(call));
    }
    return ok_status();
  }
  for (Training* const each : both) BRAID_TRY(each->begin_passes());
  const DeviceId self{static_cast<int>(rank())};
  for (const FusedPass& pass : fused_passes(program_, fused, self)) {
    const Call& call = program_.graph.calls[fused.calls[pass.call].value];
    BRAID_TRY(both[pass.call]->run_pass(pass.op).at(cat("call ", call.name)));
  }
  for (Training* const each : both) BRAID_TRY(each->end_passes());
  return ok_status();
}

// Whether what the passes of both declare together is free on all ranks.
Result<bool> Session::reserve_woven(const FusedCalls& fused) {
  std::array<const Training*, 2> both = {&trainings_.at(fused.calls[0]),
                                         &trainings_.at(fused.calls[1])};
  if (both[0]->done() && both[1]->done()) return true;
  std::array<std::optional<DeclaredPasses>, 2> declared;
  for (int c = 0; c < 2; ++c)
    if (!both[c]->done()) declared[c].emplace(both[c]->declared_passes());
  const DeviceId self{static_cast<int>(rank())};
  int64_t most = 0;
  for (const FusedPass& pass : fused_passes(program_, fused, self)) {
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

const FusedCalls& Session::pair_of(CallId call) const {
  return *std::find_if(program_.fused.begin(), program_.fused.end(), [&](const FusedCalls& fused) {
    return fused.calls[0] == call || fused.calls[1] == call;
  });
}

void Session::run_apart(const FusedCalls& fused, const std::string& why) {
  if (rows_.frame(fused.calls[0]).fused == nullptr) return;
  for (const CallId call : fused.calls) rows_.run_alone(call);
  const Call &first = program_.graph.calls[fused.calls[0].value],
             &second = program_.graph.calls[fused.calls[1].value];
  ++repeats_[first.name];
  if (leads(fused.calls[0]))
    log_warning(cat("calls ", first.name, " and ", second.name, ": out of memory (",
                    why.empty() ? kElsewhere : why,
                    "); from here on their passes run one after the other "
                    "(fusion.train_schedules)"));
}

Status Session::agree(const Call& call) {
  if (call.kind == CallKind::kGenerate)
    return generating(call, [&] { return generation_.settle(); });
  const CallId id = id_of(call);
  Training& training = open_training(id);
  BRAID_TRY(training.agree());
  if (!training.ran_out()) return ok_status();
  const std::string why = training.why_ran_out();
  if (training.woven()) {  // alone it may fit
    run_apart(pair_of(id), why);
  } else if (!cut_smaller(call, rows_, training.open_minibatch(), why)) {
    return fail_alike(id, too_little_memory(why),
                      why.empty() ? ok_status() : too_little_memory(why));
  }
  BRAID_ASSIGN(TrainWork work, train_work(call));
  training.repeat(std::move(work));
  return ok_status();
}

// The first rank of the call says what all of its ranks do.
bool Session::leads(CallId call) const {
  int64_t first = 0;
  while (first < rank() && rows_.dp_rank(call, first) < 0) ++first;
  return rank() == first;
}

// Where a refusal stops the run no rank comes to the way of the weights.
Status Session::update(const Call& call) {
  models_->note_update(call.role);
  const Status updated = open_training(id_of(call)).update();
  const bool refused = updated.code() == Code::kStopped;
  return refused ? fail_alike(id_of(call), updated, updated) : updated;
}

}  // namespace braid

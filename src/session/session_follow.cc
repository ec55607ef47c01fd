// What the first rank of a job begins and the others come along to: steps, checkpoints, exports.
#include <cmath>

#include "base/text.h"
#include "config/stall_limit.h"
#include "session/rehearse.h"
#include "session/session.h"
#include "weights/roles.h"
#include "weights/run_state.h"

namespace braid::inline session {

Status Session::announce(Command command) const {
  const auto stall_ms = std::llround(stall_limit_s(config_, longest_step_s_) * 1e3);
  return talk_.announce({command, calls_.hand_over.below(), stall_ms}, position_.step, step_open());
}

Status Session::dismiss() {
  BRAID_TRY(announce(Command::kDismiss));
  dismissed_ = true;
  return ok_status();
}

// What the first rank has too ends nothing here.
Status Session::unless_alike(const Status& status) const {
  return failed_alike() ? ok_status() : status;
}

Status Session::run_command(Command command) {
  switch (command) {
    case Command::kStep: {
      const Status taken = take_step({}).status();
      return taken.ok() || failed_alike() ? ok_status() : taken;
    }
    case Command::kEvaluate:
      return guarded([&] { return evaluation_.run().status(); });
    case Command::kSave:
      return unless_alike(guarded([&] { return begin_save({}, {}); }));
    case Command::kFinishSave:
      return unless_alike(guarded([&] { return saves_.finish(); }));
    case Command::kExport:
      return unless_alike(guarded([&] { return saves_.export_together(""); }));
    case Command::kDismiss:
      break;
  }
  return ok_status();
}

Status Session::follow() {
  while (true) {
    BRAID_ASSIGN(const RankTalk::Word word, talk_.next_word(position_.step, step_open()));
    if (word.command == Command::kDismiss) return ok_status();
    calls_.hand_over.set_below(word.hand_over_below);
    BRAID_TRY(run_command(word.command));
  }
}

Result<EvalReport> Session::evaluate() {
  BRAID_CHECK(evaluation_.configured(), "no evaluation is configured");
  BRAID_TRY(announce(Command::kEvaluate));
  return evaluation_.run();
}

Status Session::rehearse() { return rehearse_step(step_, needs_); }

Status Session::save(const std::map<std::string, double>& metrics, const Json& more) {
  BRAID_TRY(announce(Command::kSave));
  const Status saved = begin_save(metrics, more);
  if (saved.ok()) talk_.part();
  return saved;
}

Status Session::begin_save(const std::map<std::string, double>& metrics, const Json& more) {
  const JobSaves::Source source = {[&](CheckpointState* state) {
                                     return ranks() > 1 ? state_.add_waiting(step_open(), state)
                                                        : ok_status();
                                   },
                                   [&] { return save_state(); }, [&] { return state_.bytes(); }};
  return saves_.begin({position_.step, step_open()}, metrics, more, source,
                      state_.written_beside());
}

Status Session::finish_saves() {
  if (!saves_.open()) return ok_status();
  BRAID_TRY(announce(Command::kFinishSave));
  return saves_.finish();
}

Status Session::export_models(const std::string& folder) {
  if (!saves_.exports_together()) return saves_.export_alone(folder);
  BRAID_TRY(announce(Command::kExport));
  return saves_.export_together(folder);
}

Result<CheckpointState> Session::save_state() const {
  return state_.make(reach_.open(), reach_.has_noted(record_.trained.updates));
}

Status Session::load_state(CheckpointReader saved) {
  std::optional<StepProgress> open;
  const auto take = [&]() -> Status {
    BRAID_ASSIGN(open, state_.take(saved));
    return ok_status();
  };
  BRAID_TRY(talk_.agree(guarded(take), "the state of a checkpoint"));
  if (open) open->skipped = skipped();
  reach_.set_open(std::move(open));
  BRAID_TRY(take_over_state(saved.numbers(), own_roles()));
  for (const RoleSpec& spec : program_.graph.roles) models_->note_update(spec.role);
  models_->note_restored();
  if (!step_open()) models_->rest();
  return ok_status();
}

}  // namespace braid::inline session

// The state of a session as checkpoints and exports have it, and how the ranks of a job come to it
// together.
#include <cmath>

#include "base/text.h"
#include "config/stall_limit.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "session/rehearse.h"
#include "session/session.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

constexpr const char* kOpenStep = "open_step";
constexpr const char* kOpenSamples = "samples";

// Copies what would go away with the role's memory.
void detach(RoleTensors& tensors) {
  for (auto* list : {&tensors.weights, &tensors.moments})
    for (auto& [name, tensor] : *list) tensor = tensor.detach().clone();
}

}  // namespace

Status Session::announce(Command command) const {
  const auto stall_ms = std::llround(stall_limit_s(config_, longest_step_s_) * 1e3);
  return talk_.announce({command, hand_over_.below(), stall_ms}, position_.step, step_open());
}

Status Session::dismiss() {
  BRAID_TRY(announce(Command::kDismiss));
  dismissed_ = true;
  return ok_status();
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
    case Command::kExport:
      return guarded([&] { return whole_roles().status(); });
    case Command::kDismiss:
      break;
  }
  return ok_status();
}

Status Session::follow() {
  while (true) {
    BRAID_ASSIGN(const RankTalk::Word word, talk_.next_word(position_.step, step_open()));
    if (word.command == Command::kDismiss) return ok_status();
    hand_over_.set_below(word.hand_over_below);
    BRAID_TRY(run_command(word.command));
  }
}

Result<EvalReport> Session::evaluate() {
  BRAID_CHECK(evaluation_.configured(), "no evaluation is configured");
  BRAID_TRY(announce(Command::kEvaluate));
  return evaluation_.run();
}

Status Session::rehearse() { return rehearse_step(step_, needs_); }

// Of every role that a run changes, in the graph's order on all ranks.
Result<std::map<std::string, RoleTensors>> Session::whole_roles() const {
  std::map<std::string, RoleTensors> out;
  const RankModels::Everything here(*models_);
  for (const RoleSpec& spec : program_.graph.roles) {
    if (!changes(program_.graph, spec.role)) continue;
    const std::string& name = spec.role.value;
    if (!models_->whole_on_first(name)) {
      BRAID_ASSIGN(out[name], models_->gather(name));
    } else if (rank() == 0) {
      BRAID_ASSIGN(out[name], role_tensors(roles().at(name)));
    }
    if (models_->rests(spec.role)) detach(out[name]);
  }
  talk_.part();
  return out;
}

Status Session::export_models(const std::string& folder) const {
  BRAID_TRY(announce(Command::kExport));
  BRAID_ASSIGN(const auto tensors, whole_roles());
  const RankModels::Everything here(*models_);
  for (const RoleSpec& spec : program_.graph.roles) {
    if (!spec.trained) continue;
    const std::string& name = spec.role.value;
    if (models_->whole_on_first(name)) {
      BRAID_TRY(export_role(name, roles().at(name), config_, folder));
      continue;
    }
    BRAID_ASSIGN(const ModelInstance whole, whole_with(spec, config_, tensors.at(name)));
    BRAID_TRY(export_role(name, whole, config_, folder));
  }
  return ok_status();
}

Json Session::own_data_identity() const {
  return data_identity(data_.data, data_check_ ? data_check_->sha256() : data_.data.sha256());
}

Result<CheckpointState> Session::save_state() const {
  for (const auto& [name, role] : roles())
    if (role.optimizer && role.optimizer->torn())
      return Status(Code::kDataLoss, cat("an update of ", name, " is half applied"));
  for (const auto& [name, role] : roles())
    if (role.torn) return Status(Code::kDataLoss, cat("a move of ", name, " is half done"));
  if (record_.trained.updates != updates_passed_)
    return Status(Code::kDataLoss, "the last update is applied, but not noted");
  if (open_ && exchange_.ranks() > 1)
    return Status(Code::kDataLoss,
                  "updates of the step are made already, and several ranks save whole steps alone");
  BRAID_TRY(announce(Command::kSave));
  Json identity = run_identity(config_, program_, own_data_identity());
  identity["frozen"] = frozen_;
  BRAID_ASSIGN(const auto trained, whole_roles());
  BRAID_ASSIGN(CheckpointState state, run_state(identity, position_, trained));
  if (!open_) return state;
  state.numbers[kOpenStep] = progress_json(*open_);
  BRAID_ASSIGN(state.numbers[kOpenStep][kOpenSamples],
               store_json(store_, state.tensors[kOpenStep]));
  return state;
}

Result<int64_t> Session::saved_bytes() const {
  int64_t out = 0;
  for (const RoleSpec& spec : program_.graph.roles) {
    if (!changes(program_.graph, spec.role)) continue;
    BRAID_ASSIGN(const int64_t bytes, whole_bytes(as_moved(program_.graph, spec), config_));
    out += bytes;
  }
  return out;
}

Status Session::load_state(const CheckpointState& state) {
  const Json own = run_identity(config_, program_, own_data_identity());
  BRAID_TRY(check_same_run(state.numbers, own, config_.checkpoint.allow));
  saved_data_sha256_ = data_sha256_to_compare(state.numbers, own, config_.checkpoint.allow);
  BRAID_TRY(
      check_same_weights(state.numbers.value("frozen", Json()), frozen_, config_.checkpoint.allow));
  models_->bring_states();
  BRAID_TRY(load_run_state(state, config_, position_, own_roles()));
  open_.reset();
  for (const RoleSpec& spec : program_.graph.roles) models_->note_update(spec.role);
  if (!state.numbers.contains(kOpenStep)) {
    models_->rest();
    return ok_status();
  }
  if (exchange_.ranks() > 1)
    return invalid_input(
        "it is within a step, which one process began; let that finish the step, then go on here");
  const Json& json = state.numbers[kOpenStep];
  BRAID_ASSIGN(StepProgress progress, parse_progress(json));
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, kOpenSamples));
  const auto tensors = state.tensors.find(kOpenStep);
  if (tensors == state.tensors.end() || progress.next > program_.ranks[rank()].instructions.size())
    return {Code::kDataLoss, "the open step is not one of this program"};
  BRAID_TRY(load_store(samples, tensors->second, store_));
  progress.position = position_;
  progress.skipped = skipped();
  open_ = std::move(progress);
  return ok_status();
}

}  // namespace braid::inline session

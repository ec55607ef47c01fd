// The state of a session as checkpoints and exports have it, and how the ranks of a job come to it
// together.
#include <ATen/ops/tensor.h>

#include "base/text.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
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

// Where messages say that this rank is.
void Session::note_begin(Command command) const {
  if (world_ == nullptr) return;
  const std::string where =
      step_open() ? cat("within step ", position_.step + 1) : cat("after step ", position_.step);
  const auto text = [&]() -> std::string {
    switch (command) {
      case Command::kStep:
        return cat("step ", position_.step + 1);
      case Command::kEvaluate:
        return cat("evaluation ", where);
      case Command::kSave:
        return cat("checkpoint ", where);
      case Command::kExport:
        return cat("export ", where);
      case Command::kDismiss:
        break;
    }
    return cat("ending ", where);
  };
  world_->position().enter(text());
}

Status Session::announce(Command command) const {
  if (exchange_.ranks() == 1 || rank() != 0) return ok_status();
  note_begin(command);
  together_ = true;
  const at::Tensor word = at::tensor({static_cast<int32_t>(command)}, at::kInt);
  return everyone()->broadcast(word, 0, "what comes next").wait();
}

Status Session::dismiss() {
  BRAID_TRY(announce(Command::kDismiss));
  dismissed_ = true;
  return ok_status();
}

Status Session::follow() {
  while (true) {
    world_->position().enter(cat("waiting for rank 0 after step ", position_.step));
    const at::Tensor word = at::tensor({0}, at::kInt);
    BRAID_TRY(everyone()->broadcast(word, 0, "what comes next").wait());
    const auto command = static_cast<Command>(word.item<int32_t>());
    note_begin(command);
    if (command == Command::kDismiss) return ok_status();
    if (command == Command::kStep)
      if (const Status taken = take_step({}).status(); !taken.ok() && !failed_alike_) return taken;
    if (command == Command::kEvaluate)
      BRAID_TRY(guarded([&] { return take_evaluation().status(); }));
    if (command == Command::kSave || command == Command::kExport)
      BRAID_TRY(guarded([&] { return whole_roles().status(); }));
  }
}

// Of every trained role, in the graph's order on all ranks.
Result<std::map<std::string, RoleTensors>> Session::whole_roles() const {
  std::map<std::string, RoleTensors> out;
  const RankModels::Everything here(*models_);
  for (const RoleSpec& spec : program_.graph.roles) {
    if (!spec.trained) continue;
    const std::string& name = spec.role.value;
    if (!models_->whole_on_first(name)) {
      BRAID_ASSIGN(out[name], models_->gather(name));
    } else if (rank() == 0) {
      BRAID_ASSIGN(out[name], role_tensors(roles().at(name)));
    }
    if (models_->rests(spec.role)) detach(out[name]);
  }
  together_ = false;
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
  if (trained_.updates != updates_passed_)
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

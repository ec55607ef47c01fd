// The state of a session as checkpoints have it, and how the ranks of a job come to it together.
#include <cmath>

#include "base/text.h"
#include "config/stall_limit.h"
#include "device/device_copy.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "session/rehearse.h"
#include "session/session.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

constexpr const char* kOpenStep = "open_step";
constexpr const char* kOpenSamples = "samples";
constexpr const char* kAhead = "steps_ahead";  // what is made of them, and waits
constexpr const char* kLengths = "length_history";
constexpr const char* kStaleness = "staleness";  // of the run's plan; absent: 0

Status check_same_staleness(const Json& numbers, const Program& program) {
  BRAID_ASSIGN(const auto saved, json_field_or<int64_t>(numbers, kStaleness, 0));
  if (saved == program.staleness) return ok_status();
  return invalid_input(cat("staleness: it is of a run whose rollouts were up to ", saved,
                           " steps older than the weights that learnt from them, in this plan they "
                           "are ",
                           program.staleness, "; go on with a plan of staleness ", saved));
}

// Copies on the host, which neither the next step changes nor memory that goes away takes along.
void stage(RoleSlices& slices) {
  for (auto* list : {&slices.weights, &slices.moments})
    for (SavedSlice& slice : *list)
      slice.values = slice.values.is_cpu() ? slice.values.clone() : to_host(slice.values);
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
      return unless_alike(guarded([&] { return finish_save(); }));
    case Command::kExport:
      return unless_alike(guarded([&] { return export_together(""); }));
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

Status Session::save_ahead(CheckpointState* state) const {
  if (!ahead_) return ok_status();
  NamedTensors fields;
  BRAID_ASSIGN(Json waiting, ahead_->save(fields, step_.reader));
  if (rank() != 0) return ok_status();
  state->numbers[kStaleness] = program_.staleness;
  state->numbers[kAhead] = std::move(waiting);
  for (auto& [name, tensor] : fields) state->tensors[kAhead].emplace_back(name, std::move(tensor));
  return ok_status();
}

Json Session::own_data_identity() const {
  return data_identity(data_.data, data_check_ ? data_check_->sha256() : data_.data.sha256());
}

// Not where memory is limited: the copy would take it from passes, whose cuts into micro-batches,
// and so the bits of a run, would depend on when a checkpoint is written.
bool Session::saves_beside() const {
  return config_.checkpoint.async && config_.train.memory_limit_gib == 0;
}

Result<CheckpointState> Session::save_state() const {
  CheckpointState waiting;
  if (ranks() == 1) BRAID_TRY(save_ahead(&waiting));  // of a job: begin_save()
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
  CheckpointState state;
  if (rank() == 0) {
    Json identity = run_identity(config_, program_, own_data_identity());
    identity["frozen"] = frozen_;
    BRAID_ASSIGN(state.numbers, run_numbers(identity, position_));
    state.numbers.update(waiting.numbers);
    state.tensors.merge(waiting.tensors);
    if (!lengths_.is_empty()) state.numbers[kLengths] = lengths_.json();
  }
  state.numbers["roles"] = Json::object();
  const RankModels::Everything here(*models_);
  for (const auto& [name, role] : roles()) {
    if (!role.optimizer && !role.follows) continue;
    RoleSlices own = models_->own_slices(name);
    if (saves_beside() || models_->rests(RoleId{name})) stage(own);
    add_role(name, role, std::move(own), models_->leads(name), &state);
  }
  if (!open_) return state;
  NamedTensors samples;
  state.numbers[kOpenStep] = progress_json(*open_);
  BRAID_ASSIGN(state.numbers[kOpenStep][kOpenSamples], store_json(store_, samples));
  for (auto& [name, tensor] : samples)
    state.tensors[kOpenStep].emplace_back(name, std::move(tensor));
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

Status Session::load_state(CheckpointReader saved) {
  BRAID_TRY(talk_.agree(guarded([&] { return read_state(saved); }), "the state of a checkpoint")
                .status());
  BRAID_TRY(take_over_state(saved.numbers(), own_roles()));
  for (const RoleSpec& spec : program_.graph.roles) models_->note_update(spec.role);
  if (!open_) models_->rest();
  return ok_status();
}

// No rank waits for another here: each may find that its files are damaged.
Status Session::read_state(CheckpointReader& saved) {
  const Json& numbers = saved.numbers();
  const Json own = run_identity(config_, program_, own_data_identity());
  BRAID_TRY(check_same_staleness(numbers, program_));
  BRAID_TRY(check_same_run(numbers, own, config_.checkpoint.allow));
  saved_data_sha256_ = data_sha256_to_compare(numbers, own, config_.checkpoint.allow);
  BRAID_TRY(check_same_weights(numbers.value("frozen", Json()), frozen_, config_.checkpoint.allow));
  models_->bring_states();
  BRAID_TRY(load_run_state(saved, config_, position_, own_roles()));
  open_.reset();
  if (ahead_) {
    BRAID_ASSIGN(const Json waiting, json_field<Json>(numbers, kAhead));
    NamedTensors fields;
    if (saved.has(kAhead)) {
      BRAID_ASSIGN(fields, saved.whole(kAhead));
    }
    BRAID_TRY(ahead_->load(waiting, fields));
  }
  BRAID_TRY(read_lengths(numbers));
  if (!numbers.contains(kOpenStep)) return ok_status();
  BRAID_ASSIGN(open_, read_open_step(saved));
  return ok_status();
}

// A checkpoint of a run that predicted nothing has none.
Status Session::read_lengths(const Json& numbers) {
  lengths_ = LengthHistory();
  return predicts_ && numbers.contains(kLengths) ? lengths_.load(numbers[kLengths]) : ok_status();
}

Result<StepProgress> Session::read_open_step(CheckpointReader& saved) {
  if (exchange_.ranks() > 1)
    return invalid_input(
        "it is within a step, which one process began; let that finish the step, then go on here");
  const Json& json = saved.numbers()[kOpenStep];
  BRAID_ASSIGN(StepProgress progress, parse_progress(json));
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, kOpenSamples));
  if (!saved.has(kOpenStep) || progress.next > program_.ranks[rank()].instructions.size())
    return Status{Code::kDataLoss, "the open step is not one of this program"};
  BRAID_ASSIGN(const NamedTensors tensors, saved.whole(kOpenStep));
  BRAID_TRY(load_store(samples, tensors, store_));
  progress.position = position_;
  progress.skipped = skipped();
  return progress;
}

}  // namespace braid::inline session

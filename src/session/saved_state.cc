#include "session/saved_state.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "device/device_copy.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "samples/fetch_samples.h"
#include "weights/roles.h"
#include "weights/run_state.h"

namespace braid::inline session {
namespace {

constexpr const char* kOpenStep = "open_step";
constexpr const char* kOpenSamples = "samples";
constexpr const char* kAhead = "steps_ahead";  // what is made of them, and waits
constexpr const char* kCarried = "carried_samples";
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

SavedState::SavedState(const StepContext& step, const RunData& data, StepsAhead* ahead,
                       CarriedSamples* carried, LengthHistory* lengths, Json frozen)
    : step_(step),
      data_(data),
      ahead_(ahead),
      carried_(carried),
      lengths_(lengths),
      frozen_(std::move(frozen)) {
  const int64_t left = data_.data.size() - data_.data.checked();
  if (left == 0 || step_.rank() != 0) return;
  data_check_ = std::make_unique<DataCheck>(data_.data);
  log_info(cat("data.train: ", data_.data.checked(), " rows are checked; the other ", left,
               " are checked while training begins (data.check_s)"));
}

Status SavedState::follow_data_check() {
  if (!data_check_) return ok_status();
  const bool done = data_check_->done();  // asked first: what is found then is all
  note_bad_rows(step_.config, data_.data, step_.position, *data_check_);
  if (!done || saved_data_sha256_.empty()) return ok_status();
  const std::string saved = std::exchange(saved_data_sha256_, "");
  const std::string own = data_check_->sha256();
  return own.empty() || own == saved ? ok_status() : changed_data();
}

Json SavedState::own_data_identity() const {
  return data_identity(data_.data, data_check_ ? data_check_->sha256() : data_.data.sha256());
}

// Not where memory is limited: the copy would take it from passes, whose cuts into micro-batches,
// and so the bits of a run, would depend on when a checkpoint is written.
bool SavedState::written_beside() const {
  return step_.config.checkpoint.async && step_.config.train.memory_limit_gib == 0;
}

Status SavedState::add_ahead(CheckpointState* state) const {
  if (ahead_ == nullptr) return ok_status();
  NamedTensors fields;
  BRAID_ASSIGN(Json waiting, ahead_->save(fields, step_.reader));
  if (step_.rank() != 0) return ok_status();
  state->numbers[kStaleness] = step_.program.staleness;
  state->numbers[kAhead] = std::move(waiting);
  for (auto& [name, tensor] : fields) state->tensors[kAhead].emplace_back(name, std::move(tensor));
  return ok_status();
}

Status SavedState::add_carried(bool open, CheckpointState* state) const {
  if (carried_ == nullptr) return ok_status();
  BRAID_ASSIGN(Json waiting, carried_->save(open));
  if (step_.rank() == 0) state->numbers[kCarried] = std::move(waiting);
  return ok_status();
}

Status SavedState::add_waiting(bool open, CheckpointState* state) const {
  BRAID_TRY(add_ahead(state));
  return add_carried(open, state);
}

Result<CheckpointState> SavedState::make(const std::optional<StepProgress>& open,
                                         bool noted) const {
  CheckpointState state;
  // Of a job all ranks make it together, before.
  if (step_.ranks() == 1) BRAID_TRY(add_waiting(open.has_value(), &state));
  const Roles& roles = step_.models.roles();
  for (const auto& [name, role] : roles)
    if (role.optimizer && role.optimizer->torn())
      return Status(Code::kDataLoss, cat("an update of ", name, " is half applied"));
  for (const auto& [name, role] : roles)
    if (role.torn) return Status(Code::kDataLoss, cat("a move of ", name, " is half done"));
  if (!noted) return Status(Code::kDataLoss, "the last update is applied, but not noted");
  if (open && step_.ranks() > 1)
    return Status(Code::kDataLoss,
                  "updates of the step are made already, and several ranks save whole steps alone");
  if (step_.rank() == 0) {
    Json identity = run_identity(step_.config, step_.program, own_data_identity());
    identity["frozen"] = frozen_;
    BRAID_ASSIGN(const Json numbers, run_numbers(identity, step_.position));
    state.numbers.update(numbers);
    if (lengths_ != nullptr && !lengths_->is_empty()) state.numbers[kLengths] = lengths_->json();
  }
  state.numbers["roles"] = Json::object();
  const RankModels::Everything here(step_.models);
  for (const auto& [name, role] : roles) {
    if (!role.optimizer && !role.follows) continue;
    RoleSlices own = step_.models.own_slices(name);
    if (written_beside() || step_.models.rests(RoleId{name})) stage(own);
    add_role(name, role, std::move(own), step_.models.leads(name), &state);
  }
  if (!open) return state;
  NamedTensors samples;
  state.numbers[kOpenStep] = progress_json(*open);
  BRAID_ASSIGN(state.numbers[kOpenStep][kOpenSamples], store_json(step_.store, samples));
  for (auto& [name, tensor] : samples)
    state.tensors[kOpenStep].emplace_back(name, std::move(tensor));
  return state;
}

Result<int64_t> SavedState::bytes() const {
  const Graph& graph = step_.program.graph;
  int64_t out = 0;
  for (const RoleSpec& spec : graph.roles) {
    if (!changes(graph, spec.role)) continue;
    BRAID_ASSIGN(const int64_t bytes, whole_bytes(as_moved(graph, spec), step_.config));
    out += bytes;
  }
  return out;
}

Result<std::optional<StepProgress>> SavedState::take(CheckpointReader& saved) {
  const Config& config = step_.config;
  const Json& numbers = saved.numbers();
  const Json own = run_identity(config, step_.program, own_data_identity());
  BRAID_TRY(check_same_staleness(numbers, step_.program));
  BRAID_TRY(check_same_run(numbers, own, config.checkpoint.allow));
  saved_data_sha256_ = data_sha256_to_compare(numbers, own, config.checkpoint.allow);
  BRAID_TRY(check_same_weights(numbers.value("frozen", Json()), frozen_, config.checkpoint.allow));
  step_.models.bring_states();
  BRAID_TRY(load_run_state(saved, config, step_.position, step_.models.roles()));
  if (ahead_ != nullptr) {
    BRAID_ASSIGN(const Json waiting, json_field<Json>(numbers, kAhead));
    NamedTensors fields;
    if (saved.has(kAhead)) {
      BRAID_ASSIGN(fields, saved.whole(kAhead));
    }
    BRAID_TRY(ahead_->load(waiting, fields));
  }
  if (carried_ != nullptr) {
    BRAID_ASSIGN(const Json waiting, json_field<Json>(numbers, kCarried));
    BRAID_TRY(carried_->load(numbers.contains(kOpenStep), waiting));
  }
  BRAID_TRY(read_lengths(numbers));
  if (!numbers.contains(kOpenStep)) return std::optional<StepProgress>();
  BRAID_ASSIGN(StepProgress progress, read_open_step(saved));
  return std::optional(std::move(progress));
}

// A checkpoint of a run that predicted nothing has none.
Status SavedState::read_lengths(const Json& numbers) {
  if (lengths_ == nullptr) return ok_status();
  *lengths_ = LengthHistory();
  return numbers.contains(kLengths) ? lengths_->load(numbers[kLengths]) : ok_status();
}

Result<StepProgress> SavedState::read_open_step(CheckpointReader& saved) {
  if (step_.ranks() > 1)
    return invalid_input(
        "it is within a step, which one process began; let that finish the step, then go on here");
  const Json& json = saved.numbers()[kOpenStep];
  BRAID_ASSIGN(StepProgress progress, parse_progress(json));
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, kOpenSamples));
  const auto& list = step_.program.ranks[step_.rank()];
  if (!saved.has(kOpenStep) || progress.next > list.instructions.size())
    return Status{Code::kDataLoss, "the open step is not one of this program"};
  BRAID_ASSIGN(const NamedTensors tensors, saved.whole(kOpenStep));
  BRAID_TRY(load_store(samples, tensors, step_.store));
  progress.position = step_.position;
  return progress;
}

}  // namespace braid::inline session

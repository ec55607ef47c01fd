// A step of a session: its beginning, its end, and what a failure leaves of it.
#include "base/text.h"
#include "runtime/fingerprint.h"
#include "runtime/roles.h"
#include "runtime/run_identity.h"
#include "runtime/run_state.h"
#include "runtime/session.h"
#include "runtime/step_metrics.h"

namespace braid {
namespace {

constexpr const char* kOpenStep = "open_step";
constexpr const char* kOpenSamples = "samples";

}  // namespace

std::map<std::string, int64_t> Session::skipped() const {
  std::map<std::string, int64_t> out;
  for (const auto& [name, role] : roles_) out[name] = role.skipped;
  return out;
}

void Session::set_skipped(const std::map<std::string, int64_t>& skipped) {
  for (const auto& [name, count] : skipped) roles_.at(name).skipped = count;
}

void Session::begin_step() {
  updates_before_ = training_.updates();
  trained_before_ = training_.trained_tokens();
  if (!open_) {
    start_ = {};
    start_.position = position_;
    start_.skipped = skipped();
  } else {
    trained_before_ -= open_->trained_tokens;
  }
  metrics_ = open_ ? open_->metrics : Metrics();
  seconds_ = open_ ? open_->seconds : std::map<std::string, double>();
}

void Session::passed(size_t next) {
  updates_passed_ = training_.updates();
  if (!open_ && updates_passed_ == updates_before_) return;
  open_ = StepProgress{next,
                       position_,
                       metrics_,
                       seconds_,
                       skipped(),
                       training_.trained_tokens() - trained_before_,
                       training_.progress()};
}

Status Session::reopen_region(const Call& call) {
  if (call.kind == CallKind::kGenerate)
    return {Code::kDataLoss, "the open step was left within a generation"};
  training_.resume(call, position_.step, open_->training);
  return ok_status();
}

void Session::abandon_step() {
  generation_.abandon();
  inference_.abandon();
  training_.abandon();
  const StepProgress& kept = open_ ? *open_ : start_;
  position_ = kept.position;
  set_skipped(kept.skipped);
}

Result<std::map<std::string, double>> Session::run_step(const InstructionObserver& observer) {
  begin_step();
  const CallTimer timer = [&](const Call& call, double seconds) { seconds_[call.name] = seconds; };
  std::map<std::string, double> row;
  Status status = guarded([&] {
    BRAID_TRY(interpret(program_.graph, program_.ranks[0], *this, timer, observer,
                        open_ ? open_->next : 0));
    row = finish_step();
    return ok_status();
  });
  if (!status.ok()) {
    abandon_step();
    return status;
  }
  open_.reset();
  return row;
}

std::map<std::string, double> Session::finish_step() {
  std::map<std::string, double> row;
  double total = 0, training = 0;
  for (const Call& call : program_.graph.calls) {
    const double seconds = seconds_[call.name];
    row["time/" + call.name] = seconds;
    total += seconds;
    if (call.kind == CallKind::kTrainStep) training += seconds;
  }
  row["time/step"] = total;
  for (const auto& [name, metric] : metrics_) row[name] = reported(name, metric);
  const int64_t tokens = row_tokens(store_, store_.all_rows());
  const int64_t trained = training_.trained_tokens() - trained_before_;
  position_.tokens_seen += tokens;
  row["data/prompts_seen"] = static_cast<double>(position_.cursor);
  row["data/epoch"] = static_cast<double>(data_.data.epoch(position_.cursor));
  row["data/tokens_seen"] = static_cast<double>(position_.tokens_seen);
  row["perf/tokens_per_s_per_device"] = static_cast<double>(tokens) / total;
  if (trained > 0) row["perf/train_tokens_per_s"] = static_cast<double>(trained) / training;
  if (asks_rewards(config_, program_.graph))
    row["perf/gen_tokens_per_s"] = metrics_["length/response_mean"].sum / row["time/generate"];
  ++position_.step;
  return row;
}

Result<CheckpointState> Session::save_state() const {
  for (const auto& [name, role] : roles_)
    if (role.optimizer && role.optimizer->torn())
      return Status(Code::kDataLoss, cat("an update of ", name, " is half applied"));
  if (training_.updates() != updates_passed_)
    return Status(Code::kDataLoss, "the last update is applied, but not noted");
  Json identity = run_identity(config_, program_, data_.data);
  identity["frozen"] = frozen_;
  BRAID_ASSIGN(CheckpointState state, run_state(identity, position_, roles_));
  if (!open_) return state;
  state.numbers[kOpenStep] = progress_json(*open_);
  BRAID_ASSIGN(state.numbers[kOpenStep][kOpenSamples],
               store_json(store_, state.tensors[kOpenStep]));
  return state;
}

Status Session::load_state(const CheckpointState& state) {
  BRAID_TRY(check_same_run(state.numbers, run_identity(config_, program_, data_.data),
                           config_.checkpoint.allow));
  BRAID_TRY(
      check_same_weights(state.numbers.value("frozen", Json()), frozen_, config_.checkpoint.allow));
  BRAID_TRY(load_run_state(state, config_, position_, roles_));
  open_.reset();
  if (!state.numbers.contains(kOpenStep)) return ok_status();
  const Json& json = state.numbers[kOpenStep];
  BRAID_ASSIGN(StepProgress progress, parse_progress(json));
  BRAID_ASSIGN(const Json samples, json_field<Json>(json, kOpenSamples));
  const auto tensors = state.tensors.find(kOpenStep);
  if (tensors == state.tensors.end() || progress.next > program_.ranks[0].instructions.size())
    return {Code::kDataLoss, "the open step is not one of this program"};
  BRAID_TRY(load_store(samples, tensors->second, store_));
  progress.position = position_;
  progress.skipped = skipped();
  open_ = std::move(progress);
  return ok_status();
}

}  // namespace braid

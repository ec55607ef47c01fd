// A step of a session: its beginning, its end, and what a failure leaves of it.
#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "comm/transfer_audit.h"
#include "host/work_section.h"
#include "session/session.h"

namespace braid::inline session {

std::map<std::string, int64_t> Session::skipped() const {
  std::map<std::string, int64_t> out;
  for (const auto& [name, role] : roles()) out[name] = role.skipped;
  return out;
}

void Session::set_skipped(const std::map<std::string, int64_t>& skipped) {
  for (const auto& [name, count] : skipped) own_roles().at(name).skipped = count;
}

void Session::begin_step() {
  talk_.begin_step();
  record_.ledger.begin_step();
  reader_.begin_step();
  record_.repeats.clear();
  record_.metrics = open_ ? open_->metrics : Metrics();
  record_.seconds = open_ ? open_->seconds : std::map<std::string, double>();
  selects_.begin_step();
  hand_over_.begin_step();
  trains_.begin_step();
  report_.begin_step(open_ ? open_->trained_tokens : 0);
  updates_before_ = record_.trained.updates;
  followed_ = false;
  if (open_) return;
  start_ = {};
  start_.position = position_;
  start_.skipped = skipped();
}

void Session::passed(size_t next) {
  updates_passed_ = record_.trained.updates;
  if (!open_ && updates_passed_ == updates_before_ && !followed_) return;
  open_ = StepProgress{next,
                       position_,
                       record_.metrics,
                       record_.seconds,
                       skipped(),
                       report_.trained_tokens(),
                       trains_.progress()};
}

Status Session::reopen(const Instruction& begin) {
  const Call& call = step_.call(begin.call);
  if (call.kind == CallKind::kGenerate)
    return {Code::kDataLoss, "the open step was left within a generation"};
  const auto progress = open_->trainings.find(call.name);
  if (progress == open_->trainings.end())
    return {Code::kDataLoss, cat("the open step does not say how far ", call.name, " is")};
  return trains_.resume(call, progress->second);
}

void Session::abandon_step() {
  exchange_.abandon();
  rewards_.abandon();
  hand_over_.abandon();
  generation_.abandon();
  if (ahead_) ahead_->abandon();
  infers_.abandon();
  trains_.abandon();
  const StepProgress& kept = open_ ? *open_ : start_;
  position_ = kept.position;
  set_skipped(kept.skipped);
}

Result<std::map<std::string, double>> Session::run_step(const InstructionObserver& observer) {
  BRAID_TRY(announce(Command::kStep));
  return take_step(observer);
}

Status Session::run_turn(const Turn& turn, const CallSeconds& timer,
                         const InstructionObserver& noted) {
  turn_ = turn;
  BRAID_TRY(run_list(program_, rank(), *this, timer, noted, open_ ? open_->next : 0));
  BRAID_TRY(models_->end_moves());
  if (ahead_) BRAID_TRY(ahead_->exchange().end_step());
  return exchange_.end_step();
}

// What was made stays, also where the step fails.
Status Session::fill_ahead(const CallSeconds& timer, const InstructionObserver& noted) {
  while (ahead_->waiting() < ahead_->wanted(position_.step)) {
    BRAID_TRY(run_turn({.now = false}, timer, noted));
    ahead_->put();
    start_.position = position_;
  }
  rows_.forget();
  account_.begin();
  ahead_->copy_first(&store_, &exchange_.holdings(), &record_.metrics);
  return ok_status();
}

Result<std::map<std::string, double>> Session::take_step(const InstructionObserver& observer) {
  using Clock = std::chrono::steady_clock;
  begin_step();
  const double cpu_s = thread_cpu_s();
  const WorkCount counted = work_count();
  const CallSeconds timer = [&](const Call& call, double seconds) {
    if (!has_samples(turn_, call)) return;
    record_.seconds[call.name] += seconds;  // calls may run several times
    note_memory();
  };
  const InstructionObserver noted = [&](size_t index) {
    count_instruction();
    note_instruction(index);
    if (observer) observer(index);
  };
  std::map<std::string, double> row;
  timeline_.begin_step(is_recorded(config_, position_.step));
  const Clock::time_point begin = Clock::now();
  StepAudit audit;
  const Status status = guarded([&] {
    Turn turn;
    if (ahead_ && !open_) {
      BRAID_TRY(fill_ahead(timer, noted));
      turn.ahead = ahead_->waiting() <= ahead_->wanted(position_.step + 1);
    }
    BRAID_TRY(run_turn(turn, timer, noted));
    const WorkCount now = work_count();
    const double around_s = thread_cpu_s() - cpu_s - (now.work_s - counted.work_s);
    const double instruction_s =
        around_s / static_cast<double>(now.instructions - counted.instructions);
    const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
    longest_step_s_ = std::max(longest_step_s_, whole);
    Json record = timeline_.take();
    if (!record.is_null()) record["records_read"] = reader_.records_read();
    BRAID_TRY(report_.merge(whole, instruction_s, std::move(record)));
    row = report_.row(static_cast<double>(data_.data.epoch(position_.cursor)));
    ++position_.step;
    if (predicts_) note_in_history(store_, data_.data, &lengths_);
    if (carried_) carried_->end_step();
    if (!ahead_) return ok_status();
    ahead_->drop_first();
    if (turn.ahead) ahead_->put();
    return ok_status();
  });
  talk_.end_step(status);
  if (!status.ok()) {
    abandon_step();
    return status;
  }
  audit.settle(cat("step ", position_.step));
  open_.reset();
  return row;
}

Json Session::step_record() const {
  const std::vector<Json>& ranks = report_.rank_records();
  const bool none =
      std::all_of(ranks.begin(), ranks.end(), [](const Json& r) { return r.is_null(); });
  if (none) return {};
  Json shown = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].is_null()) continue;
    Json record = ranks[rank];
    record["rank"] = rank;
    record["peak_bytes"] = report_.rank_peaks()[rank];
    shown.push_back(std::move(record));
  }
  return {{"step", position_.step - 1},
          {"seconds", report_.step_s()},
          {"ranks", std::move(shown)},
          {"responses", length_quantiles(store_.response_lens())}};
}

}  // namespace braid::inline session

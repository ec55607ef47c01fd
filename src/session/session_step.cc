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
  record_.algo.clear();
  const std::optional<StepProgress>& open = reach_.open();
  record_.metrics = open ? open->metrics : Metrics();
  record_.seconds = open ? open->seconds : std::map<std::string, double>();
  calls_.begin_step();
  report_.begin_step(open ? open->trained_tokens : 0);
  StepProgress start;
  start.position = position_;
  start.skipped = skipped();
  reach_.begin(std::move(start), record_.trained.updates);
}

void Session::passed(size_t next) {
  if (!reach_.passed(record_.trained.updates, calls_.weights.followed())) return;
  reach_.set_open(StepProgress{next, position_, record_.metrics, record_.seconds, skipped(),
                               report_.trained_tokens(), calls_.trains.progress()});
}

Status Session::reopen(const Instruction& begin) {
  const Call& call = step_.call(begin.call);
  if (call.kind == CallKind::kGenerate)
    return {Code::kDataLoss, "the open step was left within a generation"};
  const StepProgress& open = *reach_.open();
  const auto progress = open.trainings.find(call.name);
  if (progress == open.trainings.end())
    return {Code::kDataLoss, cat("the open step does not say how far ", call.name, " is")};
  return calls_.trains.resume(call, begin.part, progress->second);
}

void Session::abandon_step() {
  exchange_.abandon();
  calls_.abandon();
  const StepProgress& kept = reach_.kept();
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
  BRAID_TRY(
      run_list(program_, rank(), *this, timer, noted, reach_.open() ? reach_.open()->next : 0));
  BRAID_TRY(models_->end_moves());
  BRAID_TRY(calls_.hand_over.end_step());
  if (calls_.ahead) BRAID_TRY(calls_.ahead->exchange().end_step());
  return exchange_.end_step();
}

void Session::keep_generated() {
  if (calls_.ahead) calls_.ahead->put();
  if (calls_.carried) calls_.carried->end_turn();
}

// What was made stays, also where the step fails.
Status Session::fill_ahead(const CallSeconds& timer, const InstructionObserver& noted) {
  StepsAhead* const ahead = calls_.ahead.get();
  while (ahead->waiting() < ahead->wanted(position_.step)) {
    BRAID_TRY(run_turn({.now = false}, timer, noted));
    keep_generated();
    reach_.move_start(position_);
  }
  rows_.forget();
  calls_.account.begin();
  ahead->copy_first(&store_, &exchange_.holdings(), &record_.metrics);
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
    calls_.place.come_to(index);
    if (observer) observer(index);
  };
  std::map<std::string, double> row;
  calls_.timeline.begin_step(is_recorded(config_, position_.step));
  const Clock::time_point begin = Clock::now();
  StepAudit audit;
  const Status status = guarded([&] {
    Turn turn;
    StepsAhead* const ahead = calls_.ahead.get();
    if (!step_open()) BRAID_TRY(models_->begin_step());
    if (ahead && !step_open()) {
      BRAID_TRY(fill_ahead(timer, noted));
      turn.ahead = ahead->waiting() <= ahead->wanted(position_.step + 1);
    }
    BRAID_TRY(run_turn(turn, timer, noted));
    models_->end_step();
    const WorkCount now = work_count();
    const double around_s = thread_cpu_s() - cpu_s - (now.work_s - counted.work_s);
    const double instruction_s =
        around_s / static_cast<double>(now.instructions - counted.instructions);
    const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
    longest_step_s_ = std::max(longest_step_s_, whole);
    Json record = calls_.timeline.take();
    if (!record.is_null()) record["records_read"] = reader_.records_read();
    BRAID_TRY(report_.merge(whole, instruction_s, std::move(record)));
    row = report_.row(static_cast<double>(data_.data.epoch(position_.cursor)));
    ++position_.step;
    calls_.fetches.end_step();
    if (ahead) ahead->drop_first();
    if (turn.ahead) keep_generated();
    return ok_status();
  });
  talk_.end_step(status);
  if (!status.ok()) {
    abandon_step();
    return status;
  }
  audit.settle(cat("step ", position_.step));
  reach_.end();
  return row;
}

Json Session::step_record() const {
  const std::map<int64_t, Json>& records = report_.rank_records();
  if (records.empty()) return {};
  Json shown = Json::array();
  for (const auto& [rank, record] : records) {
    shown.push_back(record);
    shown.back()["rank"] = rank;
    shown.back()["peak_bytes"] = report_.rank_peaks().at(rank);
  }
  return {{"step", position_.step - 1},
          {"seconds", report_.step_s()},
          {"ranks", std::move(shown)},
          {"responses", length_quantiles(store_.response_lens())}};
}

}  // namespace braid::inline session

// A step of a session: its beginning, its end, and what a failure leaves of it.
#include <algorithm>
#include <chrono>

#include "base/text.h"
#include "device/tensor_memory.h"
#include "host/stop_signal.h"
#include "host/work_section.h"
#include "passes/train_calls.h"
#include "samples/step_metrics.h"
#include "session/session.h"

namespace braid::inline session {
namespace {

// What the losses of a call's updates count, in one epoch.
void note_kept(const Call& call, const Deal& deal, std::map<std::string, double>& row) {
  DealTotals kept;
  for (const MiniBatch& minibatch : deal.minibatches) {
    if (minibatch.epoch > 0) continue;
    kept.samples += minibatch.totals.samples;
    kept.tokens += minibatch.totals.tokens;
  }
  row[metric_prefix(call) + "kept_samples"] = static_cast<double>(kept.samples);
  row[metric_prefix(call) + "kept_tokens"] = static_cast<double>(kept.tokens);
}

}  // namespace

std::map<std::string, int64_t> Session::skipped() const {
  std::map<std::string, int64_t> out;
  for (const auto& [name, role] : roles()) out[name] = role.skipped;
  return out;
}

void Session::set_skipped(const std::map<std::string, int64_t>& skipped) {
  for (const auto& [name, count] : skipped) own_roles().at(name).skipped = count;
}

Status Session::until_told(Status own) {
  if (exchange_.ranks() == 1) return own;
  if (untold_.ok()) untold_ = std::move(own);
  return ok_status();
}

Result<std::vector<std::string>> Session::gather_or_fail(const std::string& mine,
                                                         const std::string& what) {
  const Status own = std::exchange(untold_, ok_status());
  if (exchange_.ranks() == 1) return own.ok() ? exchange_.gather_text(mine, what) : own;
  const Json failed = {{"code", own.code()}, {"message", own.message()}};
  const std::string text =
      own.ok() ? cat("=", mine) : failed.dump(-1, ' ', false, Json::error_handler_t::replace);
  BRAID_ASSIGN(auto texts, exchange_.gather_text(text, what));
  for (size_t from = 0; from < texts.size(); ++from) {
    if (texts[from].front() != '=') {
      BRAID_ASSIGN(const Json failure, parse_json(texts[from], "the failure of a rank"));
      failed_alike_ = true;
      return Status(failure["code"].get<Code>(),
                    cat("rank ", from, ": ", failure["message"].get<std::string>()));
    }
    texts[from].erase(0, 1);
  }
  return texts;
}

Status Session::fail_alike(CallId call, const Status& decided, const Status& own) {
  for (int64_t other = 0; other < exchange_.ranks(); ++other)
    if (exchange_.ranks() == 1 || rows_.dp_rank(call, other) < 0) return decided;
  untold_ = own;
  BRAID_TRY(gather_or_fail("", "why the call ends").status());
  failed_alike_ = true;
  return decided;
}

void Session::begin_step() {
  failed_alike_ = false;
  untold_ = ok_status();
  ledger_.begin_step();
  reset_peak_tensor_bytes();
  updates_before_ = trained_.updates;
  trained_before_ = trained_.tokens;
  if (!open_) {
    start_ = {};
    start_.position = position_;
    start_.skipped = skipped();
  } else {
    trained_before_ -= open_->trained_tokens;
  }
  trainings_.clear();
  repeats_.clear();
  metrics_ = open_ ? open_->metrics : Metrics();
  seconds_ = open_ ? open_->seconds : std::map<std::string, double>();
}

void Session::passed(size_t next) {
  updates_passed_ = trained_.updates;
  if (!open_ && updates_passed_ == updates_before_) return;
  open_ = StepProgress{
      next, position_, metrics_, seconds_, skipped(), trained_.tokens - trained_before_, {}};
  for (const auto& [call, training] : trainings_)
    open_->trainings[program_.graph.calls[call.value].name] = training.progress();
}

Status Session::reopen(const Instruction& begin) {
  const Call& call = program_.graph.calls[begin.call.value];
  if (call.kind == CallKind::kGenerate)
    return {Code::kDataLoss, "the open step was left within a generation"};
  const auto progress = open_->trainings.find(call.name);
  if (progress == open_->trainings.end())
    return {Code::kDataLoss, cat("the open step does not say how far ", call.name, " is")};
  BRAID_ASSIGN(TrainWork work, train_work(call));
  open_training(begin.call).resume(call, std::move(work), position_.step, progress->second);
  return ok_status();
}

void Session::abandon_step() {
  exchange_.abandon();
  found_.clear();
  generation_.abandon();
  inference_.abandon();
  for (auto& [call, training] : trainings_) training.abandon();
  const StepProgress& kept = open_ ? *open_ : start_;
  position_ = kept.position;
  set_skipped(kept.skipped);
}

Result<std::map<std::string, double>> Session::run_step(const InstructionObserver& observer) {
  BRAID_TRY(announce(Command::kStep));
  return take_step(observer);
}

Result<std::map<std::string, double>> Session::take_step(const InstructionObserver& observer) {
  using Clock = std::chrono::steady_clock;
  begin_step();
  const double cpu_s = thread_cpu_s();
  const WorkCount counted = work_count();
  const CallSeconds timer = [&](const Call& call, double seconds) {
    seconds_[call.name] = seconds;
  };
  const InstructionObserver noted = [&](size_t index) {
    count_instruction();
    note_instruction(index);
    if (observer) observer(index);
  };
  std::map<std::string, double> row;
  const Clock::time_point begin = Clock::now();
  const Status status = guarded([&] {
    BRAID_TRY(run_list(program_, rank(), *this, timer, noted, open_ ? open_->next : 0));
    BRAID_TRY(models_->end_moves());
    BRAID_TRY(exchange_.end_step());
    const WorkCount now = work_count();
    const double around_s = thread_cpu_s() - cpu_s - (now.work_s - counted.work_s);
    instruction_s_ = around_s / static_cast<double>(now.instructions - counted.instructions);
    const double whole = std::chrono::duration<double>(Clock::now() - begin).count();
    BRAID_TRY(merge_reports(whole));
    row = finish_step();
    return ok_status();
  });
  together_ = !status.ok() && !failed_alike_;
  if (!status.ok()) {
    abandon_step();
    return status;
  }
  open_.reset();
  return row;
}

// Two calls that are fused take the same seconds together.
bool Session::runs_beside_earlier(CallId call) const {
  return std::any_of(program_.fused.begin(), program_.fused.end(),
                     [&](const FusedCalls& fused) { return fused.calls[1] == call; });
}

// On one rank the calls follow each other; on several they may overlap, and their own time is that
// of the rank that took longest.
Status Session::merge_reports(double whole_s) {
  for (const auto& [call, tokens] : rows_.lowered())
    metrics_["memory/micro_tokens_min"].add(static_cast<double>(tokens));
  report_ = {metrics_,
             seconds_,
             ledger_.entries(),
             trained_.tokens - trained_before_,
             static_cast<double>(peak_tensor_bytes()),
             repeats_,
             stop_signal()};
  rank_seconds_ = {report_.seconds};
  rank_peaks_ = {report_.peak_bytes};
  step_s_ = 0;
  for (const Call& call : program_.graph.calls)
    if (const auto found = seconds_.find(call.name);
        found != seconds_.end() && !runs_beside_earlier(id_of(call)))
      step_s_ += found->second;
  if (exchange_.ranks() == 1) return check_ledger();
  step_s_ = whole_s;
  BRAID_ASSIGN(const auto texts,
               exchange_.gather_text(report_text(report_), "reports of the step"));
  RankReport all;
  rank_seconds_.clear();
  rank_peaks_.clear();
  for (const std::string& text : texts) {
    BRAID_ASSIGN(const RankReport part, parse_report(text));
    merge(all.metrics, part.metrics);
    SampleLedger::merge(part.samples, &all.samples);
    rank_seconds_.push_back(part.seconds);
    rank_peaks_.push_back(part.peak_bytes);
    for (const auto& [call, seconds] : part.seconds)
      all.seconds[call] = std::max(all.seconds[call], seconds);
    for (const auto& [call, count] : part.repeats)
      all.repeats[call] = std::max(all.repeats[call], count);
    all.trained_tokens += part.trained_tokens;
    if (all.stop_signal.empty()) all.stop_signal = part.stop_signal;
  }
  report_ = std::move(all);
  return check_ledger();
}

Status Session::check_ledger() const {
  const std::string fault = SampleLedger::fault(report_.samples);
  BRAID_CHECK(fault.empty(), fault);
  return ok_status();
}

// The metrics of a step whose reports are merged; the step is complete then.
std::map<std::string, double> Session::finish_step() {
  std::map<std::string, double> row;
  double training = 0;
  for (const Call& call : program_.graph.calls) {
    if (call.kind == CallKind::kTrainStep)
      note_kept(call, rows_.deal(id_of(call), position_.step), row);
    const auto found = report_.seconds.find(call.name);
    if (found == report_.seconds.end()) continue;
    row["time/" + call.name] = found->second;
    if (call.kind == CallKind::kTrainStep && !runs_beside_earlier(id_of(call)))
      training += found->second;
  }
  row["time/step"] = step_s_;
  for (const auto& [name, metric] : report_.metrics) row[name] = reported(name, metric);
  for (const auto& [call, count] : report_.repeats)
    row["memory/repeats"] += static_cast<double>(count);
  const int64_t tokens = row_tokens(store_, store_.all_rows());
  position_.tokens_seen += tokens;
  row["data/prompts_seen"] = static_cast<double>(position_.cursor);
  row["data/epoch"] = static_cast<double>(data_.data.epoch(position_.cursor));
  row["data/tokens_seen"] = static_cast<double>(position_.tokens_seen);
  row["perf/tokens_per_s_per_device"] =
      static_cast<double>(tokens) / step_s_ / static_cast<double>(exchange_.ranks());
  row["perf/us_per_instruction"] = 1e6 * instruction_s_;
  const auto trained = static_cast<double>(report_.trained_tokens);
  if (trained > 0) row["perf/train_tokens_per_s"] = trained / training;
  if (asks_rewards(config_, program_.graph))
    row["perf/gen_tokens_per_s"] =
        report_.metrics["length/response_mean"].sum / row["time/generate"];
  ++position_.step;
  return row;
}

}  // namespace braid::inline session

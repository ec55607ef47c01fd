#include "session/job_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "comm/rank_texts.h"
#include "comm/transfer_audit.h"
#include "device/tensor_memory.h"
#include "host/stop_signal.h"
#include "passes/train_call_facts.h"
#include "plan/make_problem.h"
#include "samples/step_metrics.h"
#include "scoring/scoring.h"
#include "session/steps_ahead.h"

namespace braid::inline session {
namespace {

// What the losses of a call's updates count, in one epoch.
void note_kept(const Call& call, const Partition& partition, std::map<std::string, double>& row) {
  LossTotals kept;
  for (const MiniBatch& minibatch : partition.minibatches) {
    if (minibatch.epoch > 0) continue;
    kept.samples += minibatch.totals.samples;
    kept.tokens += minibatch.totals.tokens;
  }
  row[metric_prefix(call) + "kept_samples"] = static_cast<double>(kept.samples);
  row[metric_prefix(call) + "kept_tokens"] = static_cast<double>(kept.tokens);
}

}  // namespace

void JobReport::begin_step(int64_t trained_tokens) {
  reset_peak_tensor_bytes(device_);
  trained_before_ = step_.record.trained.tokens - trained_tokens;
}

RankReport JobReport::own(Json record) const {
  const StepRecord& step = step_.record;
  RankReport out;
  out.metrics = step.metrics;
  out.seconds = step.seconds;
  out.samples = step.ledger.entries();
  out.trained_tokens = trained_tokens();
  out.most_bytes = static_cast<double>(peak_tensor_bytes(device_));
  out.repeats = step.repeats;
  out.stop_signal = stop_signal();
  out.algo = step.algo;
  if (step_.rank() < kMostRecordedRanks) out.peak_bytes[step_.rank()] = out.most_bytes;
  if (!record.is_null()) out.records[step_.rank()] = std::move(record);
  const size_t shown = std::min(kShownSamples, step_.store.size());
  for (size_t row = 0; row < shown; ++row)
    if (const Json& rewards = step_.store.sample(row).rewards; !rewards.is_null())
      out.rewards[cat(row)] = rewards;
  return out;
}

// Two calls that are fused take the same seconds together.
double JobReport::seconds_of_calls() const {
  double sum = 0;
  for (const Call& call : step_.program.graph.calls)
    if (const auto found = step_.record.seconds.find(call.name);
        found != step_.record.seconds.end() &&
        !place_in_pair(step_.program, step_.id_of(call)).second())
      sum += found->second;
  return sum;
}

// On one rank the calls follow each other; on several they may overlap, and their own time is that
// of the rank that took longest.
Status JobReport::merge(double whole_s, double instruction_s, Json record) {
  instruction_s_ = instruction_s;
  for (const auto& [call, tokens] : step_.rows.lowered())
    step_.record.metrics["memory/micro_tokens_min"].add(static_cast<double>(tokens));
  report_ = own(std::move(record));
  const auto hear = [&](const std::string& text) -> Status {
    BRAID_ASSIGN(RankReport part, parse_report(text));
    braid::merge(std::move(part), &report_);
    return ok_status();
  };
  {
    const RanksTalk talk;
    BRAID_TRY(merge_to_first(step_.exchange.everyone(),
                             {[&] { return report_text(report_); }, hear}, "reports of the step"));
  }
  step_s_ = step_.ranks() == 1 ? seconds_of_calls() : whole_s;
  if (step_.rank() != 0) return ok_status();
  for (const auto& [row, rewards] : report_.rewards)
    step_.store.put_rewards(std::stoul(row), rewards);
  for (const auto& [name, value] : report_.algo) step_.position.algo[name] = value;
  const std::string fault = SampleLedger::fault(report_.samples);
  BRAID_CHECK(fault.empty(), fault);
  return ok_status();
}

void JobReport::add_calls(std::map<std::string, double>& row) const {
  double training = 0;
  for (const Call& call : step_.program.graph.calls) {
    const CallId id = step_.id_of(call);
    if (call.kind == CallKind::kTrainStep)
      note_kept(call, step_.rows.partition(id, step_.position.step), row);
    const auto found = report_.seconds.find(call.name);
    if (found == report_.seconds.end()) continue;
    row["time/" + call.name] = found->second;
    if (call.kind == CallKind::kTrainStep && !place_in_pair(step_.program, id).second())
      training += found->second;
  }
  const auto trained = static_cast<double>(report_.trained_tokens);
  if (trained > 0) row["perf/train_tokens_per_s"] = trained / training;
}

std::map<std::string, double> JobReport::row(double epoch) {
  const int64_t tokens = row_tokens(step_.store, step_.store.all_rows());
  RunPosition& position = step_.position;
  position.tokens_seen += tokens;
  if (step_.rank() != 0) return {};
  std::map<std::string, double> row;
  add_calls(row);
  row["time/step"] = step_s_;
  for (const auto& [name, metric] : report_.metrics) row[name] = reported(name, metric);
  if (const auto squares = row.extract(kRawSquares); !squares.empty()) {
    const double mean = row.at("reward/raw_mean");
    row["reward/raw_std"] = std::sqrt(std::max(squares.mapped() - mean * mean, 0.0));
  }
  for (const auto& [call, count] : report_.repeats)
    row["memory/repeats"] += static_cast<double>(count);
  row["data/prompts_seen"] = static_cast<double>(position.cursor);
  row["data/epoch"] = epoch;
  row["data/tokens_seen"] = static_cast<double>(position.tokens_seen);
  row["perf/tokens_per_s_per_device"] =
      static_cast<double>(tokens) / step_s_ / static_cast<double>(step_.ranks());
  row["perf/us_per_instruction"] = 1e6 * instruction_s_;
  if (!device_.is_cpu() && report_.most_bytes > 0)
    row["perf/peak_device_gb"] = report_.most_bytes / 1e9;
  // What is generated in a step are not its samples where some are of other steps.
  if (asks_rewards(step_.config, step_.program.graph) && most_age(step_.program) == 0)
    row["perf/gen_tokens_per_s"] =
        report_.metrics["length/response_mean"].sum / row["time/generate"];
  return row;
}

}  // namespace braid::inline session

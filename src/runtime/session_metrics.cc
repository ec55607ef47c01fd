// Running a step, and the numbers and texts that it reports.
#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "runtime/session.h"

namespace braid {
Result<std::map<std::string, double>> Session::run_step(const InstructionObserver& observer) {
  metrics_.clear();
  trained_tokens_ = 0;
  std::map<std::string, double> row;
  double total = 0, training = 0;
  const CallTimer timer = [&](const Call& call, double seconds) {
    row["time/" + call.name] = seconds;
    total += seconds;
    if (call.kind == CallKind::kTrainStep) training += seconds;
  };
  BRAID_TRY(interpret(program_.graph, program_.ranks[0], *this, timer, observer));
  row["time/step"] = total;
  for (const auto& [name, metric] : metrics_) row[name] = reported(name, metric);
  std::vector<size_t> all(store_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const int64_t tokens = row_tokens(all);
  tokens_seen_ += tokens;
  row["data/prompts_seen"] = static_cast<double>(cursor_);
  row["data/epoch"] = static_cast<double>(data_->epoch(cursor_));
  row["data/tokens_seen"] = static_cast<double>(tokens_seen_);
  row["perf/tokens_per_s_per_device"] = static_cast<double>(tokens) / total;
  if (trained_tokens_ > 0)
    row["perf/train_tokens_per_s"] = static_cast<double>(trained_tokens_) / training;
  if (scores())
    row["perf/gen_tokens_per_s"] = metrics_["length/response_mean"].sum / row["time/generate"];
  ++step_;
  return row;
}

void Session::note_lengths() {
  const TokenLists& prompts = **store_.tokens("prompt_ids");
  const at::Tensor truncated = *store_.reals("truncated");
  const std::vector<int64_t> lens = store_.response_lens();
  for (size_t i = 0; i < lens.size(); ++i) {
    const auto response = static_cast<double>(lens[i]);
    const auto prompt = static_cast<double>(prompts[i].size());
    const double cut = truncated[static_cast<int64_t>(i)].item<double>();
    for (const char* name : {"length/response_mean", "length/response_max", "length/response_min"})
      metrics_[name].add(response);
    for (const char* name : {"length/prompt_mean", "length/prompt_max"}) metrics_[name].add(prompt);
    metrics_["length/truncated_frac"].add(cut);
    metrics_["length/eos_frac"].add(1 - cut);
  }
}

void Session::note_rewards(const ScoredSamples& scored) {
  Metric raw, squares;
  for (size_t i = 0; i < scored.raw.size(); ++i) {
    if (!scored.kept[i]) continue;
    raw.add(scored.raw[i]);
    squares.add(scored.raw[i] * scored.raw[i]);
  }
  for (const char* name : {"reward/raw_mean", "reward/raw_max", "reward/raw_min"})
    metrics_[name].merge(raw);
  const double variance = squares.mean() - raw.mean() * raw.mean();
  if (raw.count > 0) metrics_["reward/raw_std"].add(std::sqrt(std::max(variance, 0.0)));
  for (const auto& [name, values] : scored.by_name)
    for (const double value : values)
      if (std::isfinite(value)) metrics_["reward/" + name + "_mean"].add(value);
  metrics_["reward/timeout"].add(static_cast<double>(scored.timeouts));
  metrics_["reward/error"].add(static_cast<double>(scored.errors));
}

// The sampler's log-probs against the trainer's, once both are known. k3 is the estimate of their
// divergence (Schulman, "Approximating KL divergence", 2020).
void Session::note_mismatch() {
  if (!store_.has("sampler_logprobs") || !store_.has("old_logprobs")) return;
  if (metrics_.count("mismatch/logprob_abs_mean") != 0) return;
  const at::Tensor gap = *store_.reals("old_logprobs") - *store_.reals("sampler_logprobs");
  if (gap.numel() == 0) return;
  const auto count = static_cast<double>(gap.numel());
  metrics_["mismatch/logprob_abs_mean"].add(gap.abs().mean().item<double>(), count);
  metrics_["mismatch/logprob_abs_max"].add(gap.abs().max().item<double>());
  metrics_["mismatch/k3"].add((at::expm1(gap) - gap).mean().item<double>(), count);
}

std::vector<Json> Session::sample_rows(size_t count) const {
  std::vector<Json> out;
  const auto responses = store_.tokens("response_ids");
  for (size_t i = 0; responses.ok() && i < std::min(count, store_.size()); ++i) {
    Json row = {{"step", step_ - 1},
                {"sample", store_.sample(i).id.value},
                {"prompt", store_.sample(i).prompt}};
    row["response_ids"] = (**responses)[i];
    if (tokenizer_) row["response"] = tokenizer_->decode((**responses)[i], true).value();
    if (const auto rewards = store_.reals("rewards"); rewards.ok())
      row["reward"] = (*rewards)[static_cast<int64_t>(i)].item<double>();
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace braid

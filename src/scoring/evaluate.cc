#include "scoring/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "algo/algorithm.h"
#include "base/text.h"
#include "data/response_text.h"
#include "reward/pass_at_k.h"
#include "rollout/stop_strings.h"
#include "scoring/score_context.h"
#include "scoring/score_samples.h"

namespace braid::inline scoring {
namespace {

SamplingOptions sampling_options(const Config& config, const Model& model) {
  SamplingOptions out;
  out.temperature = config.eval.temperature;
  out.min_new_tokens = config.rollout.min_response_length;
  out.max_new_tokens = config.rollout.max_response_length;
  out.ignore_eos = config.rollout.ignore_eos;
  out.seed = static_cast<uint64_t>(config.train.seed);
  for (const int64_t id : model.spec().eos_ids) out.stop_tokens.push_back(static_cast<int32_t>(id));
  return out;
}

void add_means(const std::vector<RewardSample>& samples, const RewardTotals& totals,
               EvalReport& report) {
  Metrics means;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (totals.kept[i]) means["eval/reward_mean"].add(totals.total[i]);
    means["eval/response_mean"].add(static_cast<double>(samples[i].response_ids.size()));
    means["eval/truncated_frac"].add(samples[i].truncated ? 1 : 0);
  }
  for (const auto& [name, values] : totals.by_name)
    for (const double value : values)
      if (std::isfinite(value)) means[cat("eval/", name, "_mean")].add(value);
  for (const auto& [name, metric] : means) report.metrics[name] = metric.mean();
  report.metrics["eval/timeout"] = static_cast<double>(totals.timeouts);
  report.metrics["eval/error"] = static_cast<double>(totals.errors);
}

std::vector<Json> sample_rows(const std::vector<RewardSample>& samples,
                              const RewardTotals& totals) {
  std::vector<Json> out;
  for (size_t i = 0; i < samples.size(); ++i) {
    Json rewards = Json::object();
    for (const auto& [name, values] : totals.by_name) rewards[name] = number_or_null(values[i]);
    out.push_back({{"sample", samples[i].sample_id},
                   {"prompt", samples[i].prompt},
                   {"response", samples[i].response},
                   {"response_ids", samples[i].response_ids},
                   {"finish", samples[i].truncated ? "length" : "stop"},
                   {"rewards", rewards},
                   {"total", number_or_null(totals.total[i])}});
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<Evaluator>> Evaluator::create(const Config& config, bool reports) {
  if (config.data.eval.empty())
    return invalid_input("data.eval: nothing to evaluate on; name a JSONL file or task:NAME");
  if (config.reward.empty())
    return invalid_input("reward: the list is empty; evaluation needs at least one reward");
  Config ordered = config;
  ordered.data.shuffle = false;
  BRAID_ASSIGN(RunData data,
               load_run_data(ordered, config.data.eval, DataNeed::kPrompts).at("data.eval"));
  std::unique_ptr<Evaluator> out(new Evaluator(config, std::move(data)));
  if (!config.rollout.stop.empty() && !out->data_.tokenizer)
    return invalid_input("rollout.stop: stop strings need a tokenizer; set tokenizer.path");
  const int64_t lines = out->data_.data.size();
  out->prompts_ = config.eval.prompts > 0 ? std::min(config.eval.prompts, lines) : lines;
  if (reports) {
    BRAID_ASSIGN(out->rewards_, make_rewards(config.reward));
  }
  return out;
}

std::vector<int64_t> Evaluator::numbers() const {
  std::vector<int64_t> out(responses());
  std::iota(out.begin(), out.end(), 0);
  return out;
}

Result<std::vector<Generated>> Evaluator::generate(Model& policy, EngineRanks* ranks,
                                                   const std::vector<int64_t>& numbers,
                                                   const RoundsTogether& together) const {
  const at::NoGradGuard no_grad;
  EngineOptions options;
  options.kv_budget_tokens = config_.rollout.kv_budget_tokens;
  options.max_concurrent = config_.rollout.max_concurrent;
  options.ranks = ranks;
  BRAID_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(policy, options));
  if (data_.tokenizer)
    engine->set_stop_check(stop_at_strings(*data_.tokenizer, config_.rollout.stop));
  const SamplingOptions sampling = sampling_options(config_, policy);
  for (const int64_t number : numbers) {
    BRAID_ASSIGN(const DataRecord record, data_.data.at(number / config_.eval.samples_per_prompt));
    BRAID_TRY(engine->submit({SampleId{number}, record.prompt_ids, sampling, 0}));
  }
  std::vector<Generated> out;
  while (true) {
    const bool left = !engine->drained();
    bool any = left;
    if (together) {
      BRAID_ASSIGN(any, together(left));
    }
    if (!any) break;
    if (!left) continue;
    BRAID_ASSIGN(std::vector<Generated> finished, engine->step());
    std::move(finished.begin(), finished.end(), std::back_inserter(out));
  }
  return out;
}

Result<std::vector<RewardSample>> Evaluator::samples(
    const std::vector<Generated>& responses) const {
  std::vector<RewardSample> out;
  for (const Generated& response : responses) {
    BRAID_ASSIGN(out.emplace_back(), reward_sample(response));
  }
  return out;
}

Result<RewardSample> Evaluator::reward_sample(const Generated& generated) const {
  const int64_t prompt = generated.sample.value / config_.eval.samples_per_prompt;
  BRAID_ASSIGN(const DataRecord record, data_.data.at(prompt));
  RewardSample out;
  out.sample_id = generated.sample.value;
  out.group = prompt;
  out.prompt = record.prompt;
  out.messages = record.conversation;
  out.prompt_ids = record.prompt_ids;
  out.response_ids = generated.response_ids;
  out.truncated = generated.finish == Finish::kLength;
  out.extra = record.extra;
  if (data_.tokenizer) {
    BRAID_ASSIGN(out.response,
                 response_text(*data_.tokenizer, out.response_ids, config_.rollout.stop));
  }
  return out;
}

void Evaluator::add_passes(const std::vector<double>& totals, EvalReport& report) const {
  const int64_t copies = config_.eval.samples_per_prompt;
  Metrics means;
  for (int64_t prompt = 0; prompt < prompts_; ++prompt) {
    int64_t scored = 0, right = 0;
    for (int64_t copy = 0; copy < copies; ++copy) {
      const double total = totals[prompt * copies + copy];
      if (!std::isfinite(total)) continue;
      ++scored;
      right += total >= config_.eval.pass_threshold;
      means["eval/accuracy"].add(total >= config_.eval.pass_threshold ? 1 : 0);
    }
    for (const int64_t k : reported_k(copies))
      if (k <= scored && copies > 1)
        means[cat("eval/pass_at_", k)].add(pass_at_k(scored, right, k));
  }
  for (const auto& [name, metric] : means) report.metrics[name] = metric.mean();
}

Result<EvalReport> Evaluator::report(const std::vector<RewardSample>& samples,
                                     const std::vector<std::vector<RewardOutcome>>& scores,
                                     int64_t step) {
  BRAID_CHECK(std::ssize(samples) == responses(), "every response of the evaluation");
  BRAID_ASSIGN(RewardOutcomes outcomes,
               collect_outcomes(rewards_, config_.reward, samples, score_context(config_, step)));
  for (size_t i = 0; i < scores.size(); ++i)
    if (!scores[i].empty()) outcomes.outcomes[i] = scores[i];
  BRAID_ASSIGN(const RewardTotals totals, apply_policies(config_.reward, outcomes, samples));
  EvalReport report;
  add_means(samples, totals, report);
  add_passes(totals.total, report);
  report.metrics["eval/prompts"] = static_cast<double>(prompts_);
  report.samples = sample_rows(samples, totals);
  return report;
}

Result<EvalReport> Evaluator::run(Model& policy, const RewardModels& models, int64_t step) {
  BRAID_ASSIGN(std::vector<Generated> drawn, generate(policy, nullptr, numbers()));
  std::sort(drawn.begin(), drawn.end(),
            [](const Generated& a, const Generated& b) { return a.sample < b.sample; });
  BRAID_ASSIGN(const std::vector<RewardSample> asked, samples(drawn));
  BRAID_ASSIGN(const RewardReaders readers, load_reward_readers(config_, data_.tokenizer));
  BRAID_ASSIGN(const auto scores, score_with(models, readers, asked, config_.train));
  return report(asked, scores, step);
}

Result<std::vector<std::vector<RewardOutcome>>> score_with(const RewardModels& models,
                                                           const RewardReaders& readers,
                                                           const std::vector<RewardSample>& samples,
                                                           const TrainConfig& train) {
  std::vector<std::vector<RewardOutcome>> out(models.size());
  for (size_t i = 0; i < models.size(); ++i) {
    if (!models[i]) continue;
    BRAID_ASSIGN(const std::vector<RewardSample> read, as_read(readers[i], samples));
    out[i] = score_samples(*models[i], read, train);
  }
  return out;
}

}  // namespace braid::inline scoring

#include "runtime/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>

#include "algo/algorithm.h"
#include "base/text.h"
#include "reward/pass_at_k.h"
#include "rollout/stop_strings.h"
#include "runtime/score_context.h"
#include "runtime/score_samples.h"

namespace braid {
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

Result<std::unique_ptr<Evaluator>> Evaluator::create(const Config& config, RewardModels models) {
  if (config.data.eval.empty())
    return invalid_input("data.eval: nothing to evaluate on; name a JSONL file or task:NAME");
  if (config.reward.empty())
    return invalid_input("reward: the list is empty; evaluation needs at least one reward");
  DataConfig in_order = config.data;
  in_order.shuffle = false;
  Config ordered = config;
  ordered.data = in_order;
  BRAID_ASSIGN(RunData data,
               load_run_data(ordered, config.data.eval, DataNeed::kPrompts).at("data.eval"));
  std::unique_ptr<Evaluator> out(new Evaluator(config, std::move(data), std::move(models)));
  if (!config.rollout.stop.empty() && !out->data_.tokenizer)
    return invalid_input("rollout.stop: stop strings need a tokenizer; set tokenizer.path");
  const int64_t lines = out->data_.data.size();
  out->prompts_ = config.eval.prompts > 0 ? std::min(config.eval.prompts, lines) : lines;
  BRAID_ASSIGN(out->rewards_, make_rewards(config.reward));
  return out;
}

Result<std::vector<RewardSample>> Evaluator::generate(Model& policy) {
  EngineOptions options;
  options.kv_budget_tokens = config_.rollout.kv_budget_tokens;
  options.max_concurrent = config_.rollout.max_concurrent;
  BRAID_ASSIGN(const std::unique_ptr<Engine> engine, Engine::create(policy, options));
  if (data_.tokenizer)
    engine->set_stop_check(stop_at_strings(*data_.tokenizer, config_.rollout.stop));
  const SamplingOptions sampling = sampling_options(config_, policy);
  const int64_t copies = config_.eval.samples_per_prompt;
  for (int64_t prompt = 0; prompt < prompts_; ++prompt) {
    BRAID_ASSIGN(const DataRecord record, data_.data.at(prompt));
    for (int64_t copy = 0; copy < copies; ++copy)
      BRAID_TRY(engine->submit({SampleId{prompt * copies + copy}, record.prompt_ids, sampling, 0}));
  }
  std::vector<RewardSample> out(prompts_ * copies);
  while (!engine->drained()) {
    BRAID_ASSIGN(const std::vector<Generated> finished, engine->step());
    for (const Generated& sample : finished) {
      const int64_t id = sample.sample.value;
      BRAID_ASSIGN(out[id], reward_sample(sample, id / copies));
    }
  }
  return out;
}

Result<RewardSample> Evaluator::reward_sample(const Generated& generated, int64_t prompt) const {
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
    BRAID_ASSIGN(out.response, data_.tokenizer->decode(out.response_ids, true));
  }
  return out;
}

Result<RewardTotals> Evaluator::score(const std::vector<RewardSample>& samples, int64_t step) {
  BRAID_ASSIGN(RewardOutcomes outcomes,
               collect_outcomes(rewards_, config_.reward, samples, score_context(config_, step)));
  for (size_t i = 0; i < reward_models_.size(); ++i)
    if (reward_models_[i])
      outcomes.outcomes[i] = score_samples(*reward_models_[i], samples, config_.train);
  return apply_policies(config_.reward, outcomes, samples);
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

Result<EvalReport> Evaluator::run(Model& policy, int64_t step) {
  const at::NoGradGuard no_grad;
  BRAID_ASSIGN(const std::vector<RewardSample> samples, generate(policy));
  BRAID_ASSIGN(const RewardTotals totals, score(samples, step));
  EvalReport report;
  add_means(samples, totals, report);
  add_passes(totals.total, report);
  report.metrics["eval/prompts"] = static_cast<double>(prompts_);
  report.samples = sample_rows(samples, totals);
  return report;
}

}  // namespace braid

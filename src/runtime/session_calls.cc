// The calls that do not train: data, generation, inference, rewards, algorithm functions.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numeric>

#include "base/text.h"
#include "runtime/response_rows.h"
#include "runtime/session.h"
#include "train/packing.h"

namespace braid {

Result<std::map<std::string, double>> Session::run_step() {
  metrics_.clear();
  std::map<std::string, double> row;
  double total = 0;
  BRAID_TRY(
      interpret(program_.graph, program_.ranks[0], *this, [&](const Call& call, double seconds) {
        row["time/" + call.name] = seconds;
        total += seconds;
      }));
  row["time/step"] = total;
  for (const auto& [name, metric] : metrics_) row[name] = reported(name, metric);
  row["data/prompts_seen"] = static_cast<double>(cursor_);
  row["data/epoch"] = static_cast<double>(data_->epoch(cursor_));
  if (row.count("time/generate") != 0)
    row["perf/gen_tokens_per_s"] = metrics_["length/response_mean"].sum / row["time/generate"];
  ++step_;
  return row;
}

Status Session::run_call(const Call& call) {
  switch (call.kind) {
    case CallKind::kFetch:
      return fetch(call);
    case CallKind::kInfer:
      return infer(call);
    case CallKind::kReward:
      return score_rewards(call);
    case CallKind::kCompute:
      return compute(call);
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

Status Session::begin_region(const Call& call) {
  return call.kind == CallKind::kGenerate ? begin_generate(call) : begin_train(call);
}

Status Session::end_region(const Call& call) {
  return call.kind == CallKind::kGenerate ? finish_generate(call) : ok_status();
}

bool Session::region_done(ExitCondition exit) const {
  if (exit == ExitCondition::kDrained) return drained_;
  return stop_training_ || minibatch_ == minibatches_.size();
}

Status Session::fetch(const Call& call) {
  const bool pairs = call.function == "pairs";
  const int64_t copies =
      pairs ? 2 : (generates(program_.graph) ? config_.rollout.samples_per_prompt : 1);
  const int64_t prompts = config_.rollout.prompts_per_step;
  std::vector<StoredSample> samples;
  TokenLists prompt_ids, response_ids;
  for (int64_t p = 0; p < prompts; ++p) {
    const DataRecord& record = data_->at(cursor_ + p);
    for (int64_t k = 0; k < copies; ++k) {
      const GroupId group{cursor_ + p};
      samples.push_back({SampleId{group.value * copies + k}, group, record.prompt, record.extra});
      prompt_ids.push_back(record.prompt_ids);
      response_ids.push_back(pairs && k == 1 ? record.rejected_ids : record.response_ids);
    }
  }
  cursor_ += prompts;
  store_.begin(std::move(samples));
  BRAID_TRY(store_.put_tokens("prompt_ids", std::move(prompt_ids)));
  for (const Field& field : call.writes)
    if (field.name == "response_ids")
      BRAID_TRY(store_.put_tokens("response_ids", std::move(response_ids)));
  return ok_status();
}

Status Session::begin_generate(const Call& call) {
  const RolloutConfig& rollout = config_.rollout;
  Model& model = *roles_.at(call.role.value).model;
  EngineOptions options;
  options.kv_budget_tokens = rollout.kv_budget_tokens;
  options.max_concurrent = rollout.max_concurrent;
  options.longest_first = rollout.longest_first;
  BRAID_ASSIGN(engine_, Engine::create(model, options));
  SamplingOptions sampling;
  sampling.temperature = rollout.temperature;
  sampling.repetition_penalty = rollout.repetition_penalty;
  sampling.min_new_tokens = rollout.min_response_length;
  sampling.max_new_tokens = rollout.max_response_length;
  sampling.ignore_eos = rollout.ignore_eos;
  sampling.seed = static_cast<uint64_t>(config_.train.seed);
  for (const int64_t id : model.spec().eos_ids)
    sampling.stop_tokens.push_back(static_cast<int32_t>(id));
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  for (size_t i = 0; i < store_.size(); ++i)
    BRAID_TRY(engine_->submit({store_.sample(i).id, (*prompts)[i], sampling, 0}));
  generated_.clear();
  drained_ = engine_->drained();
  return ok_status();
}

Status Session::generate_step(const Call&) {
  BRAID_ASSIGN(std::vector<Generated> finished, engine_->step());
  for (Generated& sample : finished) generated_[sample.sample.value] = std::move(sample);
  return ok_status();
}

Status Session::finish_generate(const Call&) {
  TokenLists responses;
  std::vector<float> logprobs, truncated;
  for (size_t i = 0; i < store_.size(); ++i) {
    Generated& sample = generated_.at(store_.sample(i).id.value);
    logprobs.insert(logprobs.end(), sample.logprobs.begin(), sample.logprobs.end());
    truncated.push_back(sample.finish == Finish::kLength ? 1 : 0);
    responses.push_back(std::move(sample.response_ids));
  }
  BRAID_TRY(store_.put_tokens("response_ids", std::move(responses)));
  BRAID_TRY(store_.put_reals("sampler_logprobs", at::tensor(logprobs)));
  BRAID_TRY(store_.put_reals("truncated", at::tensor(truncated)));
  engine_.reset();
  note_lengths();
  return ok_status();
}

void Session::note_lengths() {
  const TokenLists& prompts = **store_.tokens("prompt_ids");
  const at::Tensor truncated = *store_.reals("truncated");
  const std::vector<int64_t> lens = store_.response_lens();
  for (size_t i = 0; i < lens.size(); ++i) {
    metrics_["length/response_mean"].add(static_cast<double>(lens[i]));
    metrics_["length/prompt_mean"].add(static_cast<double>(prompts[i].size()));
    metrics_["length/truncated_frac"].add(truncated[static_cast<int64_t>(i)].item<double>());
  }
}

Status Session::infer(const Call& call) {
  const at::NoGradGuard no_grad;
  Model& model = *roles_.at(call.role.value).model;
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  std::vector<int64_t> counts;
  for (size_t i = 0; i < store_.size(); ++i)
    counts.push_back(static_cast<int64_t>((*prompts)[i].size() + (*responses)[i].size()));
  std::vector<at::Tensor> parts;
  for (const auto& rows : pack_micro_batches(counts, config_.train.micro_tokens)) {
    const ResponseRows packed = pack_responses(*prompts, *responses, rows, model.options().device);
    const at::Tensor hidden = model.forward(packed.batch, nullptr);
    const bool per_sample = call.function == "scores";
    const at::Tensor selected =
        at::index_select(hidden, 0, per_sample ? packed.last_S : packed.rows_R);
    if (call.function == "logprobs")
      parts.push_back(head_logprobs(selected, model.head_weight(), packed.targets_R,
                                    config_.rollout.temperature, false)
                          .logprobs_N);
    else
      parts.push_back(scalar_outputs(model, selected));
  }
  BRAID_TRY(store_.put_reals(call.writes.front().name, at::cat(parts)));
  note_mismatch();
  return ok_status();
}

// The sampler's log-probs against the trainer's, once both are known.
void Session::note_mismatch() {
  if (!store_.has("sampler_logprobs") || !store_.has("old_logprobs")) return;
  if (metrics_.count("mismatch/logprob_abs_mean") != 0) return;
  const at::Tensor gap = (*store_.reals("sampler_logprobs") - *store_.reals("old_logprobs")).abs();
  if (gap.numel() == 0) return;
  metrics_["mismatch/logprob_abs_mean"].add(gap.mean().item<double>(),
                                            static_cast<double>(gap.numel()));
  metrics_["mismatch/logprob_abs_max"].add(gap.max().item<double>());
}

Result<std::vector<RewardSample>> Session::reward_samples() const {
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  BRAID_ASSIGN(const at::Tensor truncated, store_.reals("truncated"));
  std::vector<RewardSample> out;
  for (size_t i = 0; i < store_.size(); ++i) {
    RewardSample sample;
    sample.sample_id = store_.sample(i).id.value;
    sample.prompt = store_.sample(i).prompt;
    sample.prompt_ids = (*prompts)[i];
    sample.response_ids = (*responses)[i];
    sample.truncated = truncated[static_cast<int64_t>(i)].item<float>() != 0;
    sample.extra = store_.sample(i).extra;
    if (tokenizer_) {
      BRAID_ASSIGN(sample.response, tokenizer_->decode(sample.response_ids, true));
    }
    out.push_back(std::move(sample));
  }
  return out;
}

Result<std::vector<RewardOutcome>> Session::model_scores(Model& model) const {
  const at::NoGradGuard no_grad;
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  std::vector<int64_t> counts;
  for (size_t i = 0; i < store_.size(); ++i)
    counts.push_back(static_cast<int64_t>((*prompts)[i].size() + (*responses)[i].size()));
  std::vector<RewardOutcome> out;
  for (const auto& rows : pack_micro_batches(counts, config_.train.micro_tokens)) {
    const ResponseRows packed = pack_responses(*prompts, *responses, rows, model.options().device);
    const at::Tensor scores =
        scalar_outputs(model,
                       at::index_select(model.forward(packed.batch, nullptr), 0, packed.last_S))
            .to(at::kCPU);
    for (size_t i = 0; i < rows.size(); ++i) {
      RewardOutcome outcome;
      outcome.kind = RewardOutcome::Kind::kValue;
      outcome.value = scores[static_cast<int64_t>(i)].item<double>();
      out.push_back(std::move(outcome));
    }
  }
  return out;
}

Status Session::score_rewards(const Call& call) {
  BRAID_ASSIGN(const std::vector<RewardSample> samples, reward_samples());
  BRAID_ASSIGN(RewardOutcomes outcomes, collect_outcomes(rewards_, config_.reward, samples));
  for (size_t i = 0; i < reward_models_.size(); ++i) {
    if (!reward_models_[i]) continue;
    BRAID_ASSIGN(outcomes.outcomes[i], model_scores(*reward_models_[i]));
  }
  BRAID_ASSIGN(RewardTotals totals, apply_policies(config_.reward, outcomes, samples));
  std::vector<float> rewards;
  for (size_t i = 0; i < samples.size(); ++i) {
    double value = totals.total[i];
    const double clip = config_.reward_total.clip;
    if (totals.kept[i]) metrics_["reward/raw_mean"].add(value);
    if (clip > 0) value = std::min(clip, std::max(-clip, value));
    if (samples[i].truncated) value -= config_.reward_total.missing_eos_penalty;
    rewards.push_back(static_cast<float>(value));
  }
  for (const auto& [name, values] : totals.by_name)
    for (const double value : values)
      if (std::isfinite(value)) metrics_["reward/" + name + "_mean"].add(value);
  metrics_["reward/timeout"].add(static_cast<double>(totals.timeouts));
  metrics_["reward/error"].add(static_cast<double>(totals.errors));
  BRAID_TRY(store_.put_reals(call.writes.front().name, at::tensor(rewards)));
  store_.retain(totals.kept);
  if (store_.size() == 0)
    return {Code::kStopped,
            "every sample was dropped by on_error: drop; look at the rewards' errors"};
  return ok_status();
}

Status Session::compute(const Call& call) {
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  std::vector<size_t> rows(store_.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  BRAID_ASSIGN(ComputeResult result, function(batch, config_.algorithm, algo_state_));
  for (const Field& field : call.writes)
    BRAID_TRY(store_.put_reals(field.name, result.fields.at(field.name)));
  for (const auto& [name, metric] : result.metrics) metrics_[name].merge(metric);
  return ok_status();
}

std::vector<Json> Session::sample_rows(size_t count) const {
  std::vector<Json> out;
  const auto responses = store_.tokens("response_ids");
  for (size_t i = 0; responses.ok() && i < std::min(count, store_.size()); ++i) {
    Json row = {{"step", step_},
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

// The generation region: the engine's rounds, or the responses of a recorded rollout.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/text.h"
#include "rollout/stop_strings.h"
#include "runtime/session.h"

namespace braid {

SamplingOptions Session::sampling_options(const Model& model) const {
  const RolloutConfig& rollout = config_.rollout;
  SamplingOptions sampling;
  sampling.temperature = rollout.temperature;
  sampling.top_p = rollout.top_p;
  sampling.top_k = rollout.top_k;
  sampling.min_p = rollout.min_p;
  sampling.repetition_penalty = rollout.repetition_penalty;
  sampling.min_new_tokens = rollout.min_response_length;
  sampling.max_new_tokens = rollout.max_response_length;
  sampling.ignore_eos = rollout.ignore_eos;
  sampling.seed = static_cast<uint64_t>(config_.train.seed);
  for (const int64_t id : model.spec().eos_ids)
    sampling.stop_tokens.push_back(static_cast<int32_t>(id));
  return sampling;
}

Status Session::set_stop_check() {
  const std::vector<std::string>& stops = config_.rollout.stop;
  if (stops.empty()) return ok_status();
  if (!tokenizer_)
    return invalid_input("rollout.stop: stop strings need a tokenizer; set tokenizer.path");
  engine_->set_stop_check(stop_at_strings(*tokenizer_, stops));
  return ok_status();
}

// Takes the responses of this step from the recorded file.
Status Session::begin_replay() {
  if (!replay_) {
    BRAID_ASSIGN(replay_, RolloutReplay::open(config_.rollout.replay));
  }
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  generated_.clear();
  replayed_.clear();
  for (size_t i = 0; i < store_.size(); ++i) {
    const SampleId id = store_.sample(i).id;
    BRAID_ASSIGN(RolloutRow row, replay_->find(step_, id, (*prompts)[i]));
    Generated& sample = generated_[id.value];
    sample.response_ids = row.response_ids;
    sample.logprobs = row.logprobs;
    sample.finish = row.truncated ? Finish::kLength : Finish::kStop;
    replayed_[id.value] = std::move(row);
  }
  drained_ = true;
  return ok_status();
}

Status Session::begin_generate(const Call& call) {
  if (!config_.rollout.replay.empty()) return begin_replay();
  const RolloutConfig& rollout = config_.rollout;
  Model& model = *roles_.at(call.role.value).model;
  EngineOptions options;
  options.kv_budget_tokens = rollout.kv_budget_tokens;
  options.max_concurrent = rollout.max_concurrent;
  options.longest_first = rollout.longest_first;
  BRAID_ASSIGN(engine_, Engine::create(model, options));
  BRAID_TRY(set_stop_check());
  const SamplingOptions sampling = sampling_options(model);
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  for (size_t i = 0; i < store_.size(); ++i)
    BRAID_TRY(engine_->submit({store_.sample(i).id, (*prompts)[i], sampling, 0}));
  generated_.clear();
  drained_ = engine_->drained();
  return ok_status();
}

Status Session::generate_step(const Call&) {
  if (!engine_) return ok_status();
  BRAID_ASSIGN(std::vector<Generated> finished, engine_->step());
  for (Generated& sample : finished) generated_[sample.sample.value] = std::move(sample);
  return ok_status();
}

Status Session::finish_generate(const Call& call) {
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
  roles_.at(call.role.value).model->rest();  // updates pack anew: after them the weights are others
  note_lengths();
  return ok_status();
}

}  // namespace braid

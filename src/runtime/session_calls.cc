// Data, inference and algorithm functions.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numeric>

#include "base/text.h"
#include "runtime/response_rows.h"
#include "runtime/session.h"

namespace braid {

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
    BRAID_ASSIGN(const DataRecord record, data_->at(cursor_ + p));
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

Status Session::infer(const Call& call) {
  Model& model = *roles_.at(call.role.value).model;
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  const bool per_sample = call.function == "scores", logprobs = call.function == "logprobs";
  std::vector<at::Tensor> parts;
  const auto add_part = [&](const ResponseRows& packed, const at::Tensor& hidden_TH) {
    const at::Tensor selected =
        at::index_select(hidden_TH, 0, per_sample ? packed.last_S : packed.rows_R);
    parts.push_back(logprobs ? head_logprobs(selected, model.head_weight(), packed.targets_R,
                                             config_.rollout.temperature)
                                   .logprobs_N
                             : scalar_outputs(model, selected));
  };
  for_each_micro_batch(model, *prompts, *responses, config_.train.micro_tokens, add_part);
  BRAID_TRY(store_.put_reals(call.writes.front().name, at::cat(parts)));
  note_mismatch();
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

}  // namespace braid

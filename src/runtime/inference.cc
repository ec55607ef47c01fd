#include "runtime/inference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "runtime/response_rows.h"

namespace braid {

at::Tensor infer_rows(Model& model, Inferred what, const TokenLists& prompts,
                      const TokenLists& responses, const Rows& rows, double temperature) {
  const at::NoGradGuard no_grad;
  const ResponseRows packed = pack_responses(prompts, responses, rows, model.options().device);
  const at::Tensor hidden_TH = model.forward(packed.batch, nullptr);
  const at::Tensor selected =
      at::index_select(hidden_TH, 0, what == Inferred::kScores ? packed.last_S : packed.rows_R);
  if (what != Inferred::kLogprobs) return scalar_outputs(model, selected);
  return head_logprobs(selected, model.head_weight(), packed.targets_R, temperature).logprobs_N;
}

void Inference::begin(Model& model, Inferred what, size_t micro_batches) {
  model_ = &model;
  what_ = what;
  rows_.clear();
  parts_.clear();
  model.keep_packed(micro_batches > 1);
}

Status Inference::forward(const SampleStore& store, const Rows& rows) {
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens("response_ids"));
  parts_.push_back(infer_rows(*model_, what_, *prompts, *responses, rows, temperature_));
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  return ok_status();
}

void Inference::abandon() {
  parts_.clear();
  if (model_ != nullptr) model_->rest();
  model_ = nullptr;
}

Status Inference::collect(SampleStore& store, const std::string& field) {
  model_->rest();
  model_ = nullptr;  // a frozen role gets another model when the one that it shares changes
  const at::Tensor packed = parts_.empty() ? at::empty({0}) : at::cat(parts_);
  parts_.clear();
  return store.put_reals(field, rows_, packed);
}

}  // namespace braid

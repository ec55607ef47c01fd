#include "runtime/training.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "runtime/dealing.h"
#include "runtime/offending_batch.h"
#include "runtime/response_rows.h"
#include "runtime/roles.h"
#include "runtime/run_folder.h"
#include "runtime/step_metrics.h"

namespace braid {
namespace {

constexpr const char* kUpdateKl = "kl/update";
constexpr const char* kCritic = "critic";

}  // namespace

// All calls but the critic's wait, under critic.warmup_steps.
int64_t Training::idle_steps() const {
  const bool waits = roles_.count(kCritic) > 0 && call_->role.value != kCritic;
  return waits ? config_.critic.warmup_steps : 0;
}

Rows Training::trained_rows() const {
  const Rows all = store_.all_rows();
  if (!config_.algorithm.mask_truncated || !generates(graph_)) return all;
  const Result<at::Tensor> truncated_S = store_.reals("truncated", all);
  BRAID_CHECK(truncated_S.ok(), "generation says which responses were cut");
  Rows rows;
  for (size_t i = 0; i < all.size(); ++i)
    if ((*truncated_S)[static_cast<int64_t>(i)].item<float>() == 0) rows.push_back(all[i]);
  return rows;
}

void Training::begin(const Call& call, int64_t step) {
  call_ = &call;
  step_ = step;
  minibatches_ = mini_batches(store_, trained_rows(), config_.train, step);
  minibatch_ = 0;
  stopped_ = step < idle_steps() || minibatches_.empty();
  call_metrics_.clear();
  losses_.clear();
}

void Training::resume(const Call& call, int64_t step, TrainingProgress progress) {
  begin(call, step);
  minibatch_ = progress.minibatch;
  stopped_ = progress.stopped;
  call_metrics_ = std::move(progress.metrics);
}

void Training::abandon() {
  losses_.clear();
  if (call_ == nullptr) return;
  zero();
  role().model->rest();
}

std::vector<Rows> Training::begin_update() {
  refusal_.clear();
  norm_.reset();
  if (done()) return {};
  const Rows& rows = minibatches_[minibatch_];
  denominators_ = denominators(store_, rows);
  trained_tokens_ += row_tokens(store_, rows);
  auto parts = micro_batches(store_, rows, config_.train.micro_tokens, !generates(graph_));
  role().model->keep_packed(parts.size() > 1);
  const auto update = static_cast<uint64_t>(step_) << 32 | minibatch_;
  role().model->set_dropout_seed(mix_seed(static_cast<uint64_t>(config_.train.seed), update));
  return parts;
}

Result<ModelOutputs> Training::outputs(const Rows& rows) const {
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  Model& model = *role().model;
  const ResponseRows packed = pack_responses(*prompts, *responses, rows, model.options().device);
  const at::Tensor hidden = model.forward(packed.batch, nullptr);
  ModelOutputs out;
  if (model.spec().scalar_head) {
    out.values_R = scalar_outputs(model, at::index_select(hidden, 0, packed.rows_R));
    out.scores_S = scalar_outputs(model, at::index_select(hidden, 0, packed.last_S));
    return out;
  }
  const double temperature = generates(graph_) ? config_.rollout.temperature : 1;
  const HeadOutput head = head_logprobs(at::index_select(hidden, 0, packed.rows_R),
                                        model.head_weight(), packed.targets_R, temperature);
  out.logprobs_R = head.logprobs_N;
  out.entropy_R = head.entropy_N;
  return out;
}

Status Training::forward(int32_t index, const Rows& rows) {
  BRAID_ASSIGN(const LossFn loss, find_loss(call_->function));
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call_->reads, rows));
  BRAID_ASSIGN(const ModelOutputs given, outputs(rows));
  BRAID_ASSIGN(LossResult result, loss(given, batch, denominators_, config_.algorithm));
  merge(metrics_, result.metrics);
  merge(call_metrics_, result.metrics);
  if (!std::isfinite(result.loss.item<double>()))
    refusal_ = cat("the loss of ", call_->role, " is not finite in step ", step_);
  losses_[index] = std::move(result.loss);
  return ok_status();
}

void Training::backward(int32_t index) {
  const auto found = losses_.find(index);
  BRAID_CHECK(found != losses_.end(), cat("no loss of micro-batch ", index));
  found->second.backward();
  losses_.erase(found);
}

void Training::norm() {
  if (done() || !refusal_.empty()) return;
  norm_ = role().optimizer->gradient_norm();
  if (!std::isfinite(*norm_))
    refusal_ = cat("the gradient norm of ", call_->role, " is not finite in step ", step_);
}

void Training::agree() {
  const auto kl = call_metrics_.find(kUpdateKl);
  if (config_.algorithm.stop_kl > 0 && kl != call_metrics_.end() &&
      kl->second.mean() > config_.algorithm.stop_kl)
    stopped_ = true;
}

void Training::zero() { role().optimizer->zero_grad(); }

Status Training::apply(const std::string& prefix) {
  AdamW& optimizer = *role().optimizer;
  const int64_t steps = std::max<int64_t>(config_.train.total_steps - idle_steps(), 1);
  const int64_t total = steps * config_.train.minibatches * config_.train.epochs_per_rollout;
  metrics_[prefix + "lr"].add(optimizer.next_rate(total));
  if (!refusal_.empty()) return ok_status();
  BRAID_TRY(keep_frozen_copies(roles_, call_->role.value, config_));
  optimizer.update(*norm_, total);
  role().model->weights_changed();
  ++updates_;
  metrics_[prefix + "grad_norm"].add(*norm_);
  return ok_status();
}

Status Training::update() {
  if (stopped_) {
    zero();
    return ok_status();
  }
  const std::string prefix = (call_->metrics.empty() ? call_->role.value : call_->metrics) + "/";
  if (norm_) BRAID_TRY(apply(prefix));
  zero();
  const bool refused = !refusal_.empty();
  metrics_[prefix + "skipped"].add(refused ? 1 : 0);
  role().skipped = refused ? role().skipped + 1 : 0;
  if (refused) BRAID_TRY(refuse());
  ++minibatch_;
  return ok_status();
}

// The weights are as they were.
Status Training::refuse() {
  const RefusedUpdate update{step_, minibatch_, minibatches_[minibatch_], refusal_};
  BRAID_ASSIGN(const std::string path, write_offending_batch(run_folder(config_), *call_, update,
                                                             store_, refused_step_ == step_));
  refused_step_ = step_;
  const std::string what = cat(refusal_, "; the update was not applied, its batch is in ", path);
  if (config_.train.on_nonfinite == "stop")
    return {Code::kStopped, what + " (train.on_nonfinite: stop)"};
  const int64_t skipped = role().skipped;
  if (skipped > config_.train.max_skipped_steps)
    return {Code::kStopped, cat(what, "; ", skipped, " in a row, train.max_skipped_steps is ",
                                config_.train.max_skipped_steps)};
  log_warning(what);
  return ok_status();
}

}  // namespace braid

// The training of one rank: mini-batches of a step's samples, each an update whose forwards and
// backwards come one op at a time. begin() opens a train call; then, for each mini-batch until
// done(): begin_update(), forward() and backward() of micro-batches, norm(), agree(), update().
// Nothing changes weights but update(). Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "runtime/load_models.h"
#include "runtime/sample_store.h"

namespace braid {

// How far an open train call is, between two of its updates.
struct TrainingProgress {
  size_t minibatch = 0;  // the next one
  bool stopped = false;
  Metrics metrics;  // of the call
};

class Training {
 public:
  // REQUIRES: what the references point to outlives this. `metrics` are those of the step.
  Training(const Config& config, const Graph& graph, Roles& roles, const SampleStore& store,
           Metrics& metrics)
      : config_(config), graph_(graph), roles_(roles), store_(store), metrics_(metrics) {}

  // Opens a train call of step `step` (from 0). REQUIRES: the call outlives the region.
  void begin(const Call& call, int64_t step);
  // Opens the call again where `progress` of it was taken.
  void resume(const Call& call, int64_t step, TrainingProgress progress);
  TrainingProgress progress() const { return {minibatch_, stopped_, call_metrics_}; }
  // Frees what the open update holds, as after a failure; no weights change.
  void abandon();
  // No update is left: all were made, or the call stopped early, or warm-up leaves it out.
  bool done() const { return stopped_ || minibatch_ == minibatches_.size(); }

  // The next mini-batch: its totals are those of the losses until update(). Returns its
  // micro-batches; none where the call is done.
  std::vector<Rows> begin_update();
  // Loss of a micro-batch, kept under its index until its backward. A loss that is not finite
  // refuses the update.
  Status forward(int32_t index, const Rows& rows);
  // Adds its gradients and frees what the forward kept. REQUIRES: forward(index).
  void backward(int32_t index);
  // Global norm of the gradients; one that is not finite refuses the update.
  void norm();
  // What all ranks of the call decide alike: whether the call stops early. A loss that reports
  // kl/update, the divergence from the policy that generated, asks for it once the mean over the
  // call's updates exceeds algorithm.stop_kl.
  void agree();
  // Applies the gradients, unless refused or stopped, and clears them. A refused update follows
  // train.on_nonfinite: kStopped, or a warning.
  Status update();
  // Clears the gradients of the call's role.
  void zero();

  // Since this was made: tokens of all forwards and backwards, and updates that changed weights.
  int64_t trained_tokens() const { return trained_tokens_; }
  int64_t updates() const { return updates_; }

 private:
  ModelInstance& role() const { return roles_.at(call_->role.value); }
  // Steps at the start in which the call does not train.
  int64_t idle_steps() const;
  // Without cut responses under algorithm.mask_truncated.
  Rows trained_rows() const;
  Result<ModelOutputs> outputs(const Rows& rows) const;
  Status apply(const std::string& prefix);
  Status refuse();

  const Config& config_;
  const Graph& graph_;
  Roles& roles_;
  const SampleStore& store_;
  Metrics& metrics_;
  int64_t trained_tokens_ = 0;
  int64_t updates_ = 0;
  int64_t refused_step_ = -1;  // the last step whose offending batches were written

  // Of the open call.
  const Call* call_ = nullptr;
  int64_t step_ = 0;
  std::vector<Rows> minibatches_;
  size_t minibatch_ = 0;
  bool stopped_ = false;
  Metrics call_metrics_;  // of this call alone

  // Of the open update.
  Denominators denominators_;
  std::map<int32_t, at::Tensor> losses_;
  std::optional<double> norm_;
  std::string refusal_;  // why the update must not be applied; "" = it may
};

}  // namespace braid

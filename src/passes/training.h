// The training of one rank: mini-batches of a step's samples, each an update. begin() opens a train
// call with the ops of this rank (program/expand.h); then, for each mini-batch until done():
// pass(), reduce(), agree(), update(), which execute the ops of that mini-batch, one part each.
// Nothing changes weights but update(). Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "passes/model_pass.h"
#include "plan/make_problem.h"
#include "program/deal.h"
#include "program/expand.h"
#include "program/minibatch_parts.h"
#include "samples/call_groups.h"
#include "samples/response_rows.h"
#include "samples/sample_ledger.h"
#include "samples/sample_store.h"
#include "weights/load_models.h"

namespace braid::inline passes {

// How far an open train call is, between two of its updates.
struct TrainingProgress {
  size_t minibatch = 0;  // the next one
  bool stopped = false;
  Metrics metrics;  // of the call
};

// What a train call executes on this rank.
struct TrainWork {
  ModelInstance* role = nullptr;  // the home copy's
  const Deal* deal = nullptr;
  Expansion ops;
  CallGroups groups;
  Communicator* everyone = nullptr;  // for messages between stages
  // Packed copies of matrices may stay between micro-batches: speed for memory.
  bool keeps_packed = true;
  PassNeeds* needs = nullptr;  // of the call
};

class Training : private PassEnds {
 public:
  // REQUIRES: what the references point to outlives this. `metrics` are those of the step.
  Training(const Config& config, const Graph& graph, Roles& roles, const SampleStore& store,
           Metrics& metrics, SampleLedger& ledger)
      : config_(config),
        graph_(graph),
        roles_(roles),
        store_(store),
        metrics_(metrics),
        ledger_(ledger),
        packed_(shares_prompts(config, graph)) {}

  // Opens a train call of step `step` (from 0). REQUIRES: what the work points to, and the call,
  // outlive the region.
  void begin(const Call& call, TrainWork work, int64_t step);
  // Opens the call again where `progress` of it was taken.
  void resume(const Call& call, TrainWork work, int64_t step, TrainingProgress progress);
  TrainingProgress progress() const { return {minibatch_, stopped_, call_metrics_}; }
  // Frees what the open update holds, as after a failure; no weights change.
  void abandon();
  // No update is left: all were made, or the call stopped early, or warm-up leaves it out.
  bool done() const { return stopped_ || minibatch_ == work_.deal->minibatches.size(); }

  // Whether the next mini-batch finds the memory that its ops declare, on all ranks of the call,
  // which decide it together; true where nobody knows what is free or needed.
  Result<bool> reserve();
  // Goes on with the same mini-batches cut otherwise. REQUIRES: the next one was not begun.
  void recut(TrainWork work);
  // Bytes that update() holds beside what is there when it begins, and gives back.
  int64_t update_bytes() const { return role().optimizer->update_bytes(); }
  // The forwards and backwards of the next mini-batch, messages between stages, and the sums over
  // ranks that share a tensor. A loss that is not finite refuses the update. Nothing where done.
  Status pass();
  // Completes the sums of the gradients over the data-parallel ranks.
  Status reduce();
  // The global norm of the gradients, and what all ranks of the call decide alike: whether the
  // update is refused, which it is where a loss or the norm is not finite, and whether the call
  // stops early. A loss that reports kl/update, the divergence from the policy that generated, asks
  // for that once the mean over the call's updates exceeds algorithm.stop_kl.
  Status agree();
  // Whether memory ran out in the open update on some rank, as agree() found: then it must be
  // repeated or abandoned.
  bool ran_out() const { return ran_out_; }
  // Why, where that was on this rank; else "".
  const std::string& why_ran_out() const { return why_ran_out_; }
  // Begins the open update again, with the same mini-batches cut otherwise; nothing remains of what
  // was done of it, and the update() that comes next does nothing.
  void repeat(TrainWork work);
  // Applies the gradients, unless refused or stopped, and clears them. A refused update follows
  // train.on_nonfinite: kStopped, or a warning.
  Status update();
  size_t open_minibatch() const { return minibatch_; }

  // Since this was made: tokens of the samples of all forwards and backwards, which one rank of
  // those that share them counts, and updates that changed weights.
  int64_t trained_tokens() const { return trained_tokens_; }
  int64_t updates() const { return updates_; }

 private:
  ModelInstance& role() const { return *work_.role; }
  Model& model() const { return *work_.role->model; }
  const MiniBatch& minibatch() const { return work_.deal->minibatches[minibatch_]; }
  const SampleRows& micro_batch(int32_t index) const {
    return minibatch().micro_batches[work_.ops.at.dp_rank][index];
  }
  // Steps at the start in which the call does not train.
  int64_t idle_steps() const;
  Rows own_rows() const;
  int64_t tokens_of(int32_t micro_batch) const {
    return micro_batch_tokens(*work_.deal, work_.ops, static_cast<int32_t>(minibatch_),
                              micro_batch);
  }
  // Whether this rank's losses are the ones that metrics count: all ranks of a stage have equal
  // ones.
  bool reports() const { return work_.ops.at.tp_rank == 0; }
  // Whether this rank reports what is equal on all ranks of the call.
  bool counts() const { return reports() && work_.ops.at.dp_rank == 0 && last_stage(); }
  bool last_stage() const { return work_.ops.bodies.back().head; }
  bool sums_parts() const;
  bool each_backward() const;
  bool reduces_in(size_t left) const;
  void begin_reduced(const Op& backward);

  // Runs the ops of one part of the open mini-batch, from the first op that was not executed yet.
  template <typename Run>
  Status run_ops(MinibatchPart part, const Run& run);
  Status open_update();
  Status sum_parts(const Op& op);
  // What ranks do with the gradients; where memory runs out, again with more of it.
  Status with_room(const std::function<Status()>& act);
  Status norm();
  Status agree_with_others(Metric* divergence);
  Status apply(const std::string& prefix);
  Status gather();
  Status refuse();
  void zero();

  bool empty(int32_t micro_batch) const override;
  void passed_by(int64_t unit) override;
  Result<TokenBatch> tokens(int32_t micro_batch) override;
  Status outputs(int32_t micro_batch, const at::Tensor& hidden_TH) override;
  Result<at::Tensor> loss(int32_t micro_batch) override;
  std::optional<int64_t> head_rows(int32_t micro_batch) const override {
    return packed_.at(micro_batch).count();
  }
  void drop() override;
  void go_to_minibatch(size_t minibatch);

  const Config& config_;
  const Graph& graph_;
  Roles& roles_;
  const SampleStore& store_;
  Metrics& metrics_;
  SampleLedger& ledger_;
  int64_t trained_tokens_ = 0;
  int64_t updates_ = 0;
  int64_t refused_step_ = -1;  // the last step whose offending batches were written

  // Of the open call.
  const Call* call_ = nullptr;
  int64_t step_ = 0;
  TrainWork work_;
  size_t minibatch_ = 0;
  bool stopped_ = false;
  Metrics call_metrics_;  // of this call alone

  // Of the open update.
  struct Before {  // what its passes add to
    Metrics metrics, call_metrics;
    SampleLedger ledger;
    int64_t trained_tokens = 0;
  };
  Before before_;
  bool ran_out_ = false, repeats_ = false;
  std::string why_ran_out_;
  size_t next_op_ = 0;
  Denominators denominators_;
  PackedBatches packed_;
  std::map<int32_t, LossResult> losses_;
  size_t backwards_left_ = 0;
  std::optional<double> norm_;
  std::string refusal_;  // why the update must not be applied; "" = it may
};

}  // namespace braid::inline passes

// The training of one rank: mini-batches of a step's samples, each an update, the first of which
// may be made in parts (program/streamed_update.h). begin() opens a train
// call with the ops of this rank (program/expand.h); then, for each mini-batch until done():
// pass(), reduce(), agree(), update(), gather(), which execute the ops of that mini-batch that say
// so in Op::run. Nothing changes weights but update() and gather(). Several calls may be open at
// once, each in a Training of its own. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "dataflow/graph.h"
#include "passes/model_pass.h"
#include "passes/transfer_check.h"
#include "plan/make_problem.h"
#include "program/expand.h"
#include "program/op_cursor.h"
#include "program/partition.h"
#include "samples/call_groups.h"
#include "samples/offending_batch.h"
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

// What all train calls of a session add to.
struct TrainedSoFar {
  int64_t tokens =
      0;  // of the samples of all updates, which one rank of those that share them counts
  int64_t updates = 0;        // that changed weights
  int64_t refused_step = -1;  // the last step whose offending batches were written
};

// What a train call executes on this rank.
struct TrainWork {
  ModelInstance* role = nullptr;  // the home copy's
  const Partition* partition = nullptr;
  CallFrame frame;
  Expansion ops;
  CallGroups groups;
  Communicator* everyone = nullptr;  // for messages between stages
  // Packed copies of matrices may stay between micro-batches: speed for memory.
  bool keeps_packed = true;
  PassNeeds* needs = nullptr;  // of the call
  bool more = false;           // of a part of its samples, behind which another comes
  // Another call's passes come between its own, and it is the second of the two.
  bool fused = false, second = false;
};

class Training : private PassEnds {
 public:
  // REQUIRES: what the references point to outlives this. `metrics` and `ledger` are those of the
  // step: they get what an update has been made of when it is made.
  Training(const Config& config, const Graph& graph, Roles& roles, const SampleStore& store,
           Metrics& metrics, SampleLedger& ledger, TrainedSoFar& trained)
      : config_(config),
        graph_(graph),
        roles_(roles),
        store_(store),
        metrics_(metrics),
        ledger_(ledger),
        trained_(trained),
        packed_(shares_prompts(config, graph)) {}

  // Opens a train call of step `step` (from 0). REQUIRES: what the work points to, and the call,
  // outlive the region.
  void begin(const Call& call, TrainWork work, int64_t step);
  // Goes on with a further part of its samples: behind the gradients of the parts before, where the
  // first mini-batch was begun by them, else without these.
  void go_on(TrainWork work);
  // Opens the call again where `progress` of it was taken.
  void resume(const Call& call, TrainWork work, int64_t step, TrainingProgress progress);
  // After the last update.
  TrainingProgress progress() const {
    return {open_minibatch(), stopped_, open_ ? open_->call_metrics : call_metrics_};
  }
  // Frees what the open update holds, as after a failure; no weights change.
  void abandon();
  // The call is done before this mini-batch until it is told of another, or of none.
  void stop_before(std::optional<size_t> minibatch) { end_ = minibatch; }
  // No update is left: all were made, or those before stop_before(), or the call stopped early, or
  // warm-up leaves it out.
  // No mini-batch is open, on all ranks alike: one may have nothing to do in a part of an update.
  bool is_over() const {
    return stopped_ || open_minibatch() >= work_.partition->minibatches.size() ||
           (end_ && open_minibatch() >= *end_);
  }
  bool done() const { return stopped_ || cursor_.done() || (end_ && open_minibatch() >= *end_); }

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
  // The same in pieces, where another call's passes come between: those of the call in the order in
  // which its ops list them. A pass that this rank has no micro-batch for is none.
  Status begin_passes();
  Status run_pass(const ScheduleOp& pass);
  Status end_passes();
  bool fused() const { return work_.fused; }
  // What the next mini-batch's passes will hold. REQUIRES: not done().
  DeclaredPasses declared_passes() const;
  // Since begin(): what passes have held at most, and of one micro-batch.
  const HeldByPasses& held() const { return held_; }
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
  // Brings updated weights to the ranks that hold them, where these update a part each; until then
  // they are torn. Nothing where nothing was updated.
  Status gather();
  size_t open_minibatch() const { return cursor_.minibatch(); }

  const TrainWork& work() const { return work_; }

 private:
  ModelInstance& role() const { return *work_.role; }
  Model& model() const { return *work_.role->model; }
  const MiniBatch& minibatch() const { return work_.partition->minibatches[open_minibatch()]; }
  const SampleRows& micro_batch(int32_t index) const {
    return minibatch().micro_batches[work_.ops.at.dp_rank][index];
  }
  // Steps at the start in which the call does not train.
  int64_t idle_steps() const;
  Rows own_rows() const;
  int64_t tokens_of(int32_t micro_batch) const {
    return micro_batch_tokens(*work_.partition, work_.ops, cursor_.minibatch(), micro_batch);
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

  // Runs the ops of the open mini-batch that an instruction of this kind executes, from the first
  // op that was not executed yet.
  template <typename Run>
  Status run_ops(OpKind kind, const Run& run);
  Status run_op_of_passes(int32_t op);
  void commit();
  Status open_update();
  void begin_part();
  // Of the parts before, which were divided by that many tokens.
  void scale_gradients(double tokens);
  // What the open update was made of so far counts for nothing.
  void forget_update();
  Status sum_parts(const Op& op);
  // What ranks do with the gradients; where memory runs out, again with more of it.
  Status with_room(const std::function<Status()>& act);
  Status norm();
  Status agree_with_others(Metric* divergence);
  Status apply(const std::string& prefix);
  void settle();
  Status refuse(const RefusedUpdate& update);
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
  TrainedSoFar& trained_;

  // Of the open call.
  const Call* call_ = nullptr;
  int64_t step_ = 0;
  TrainWork work_;
  OpCursor cursor_;  // of its ops
  bool stopped_ = false;
  std::optional<size_t> end_;  // the mini-batch before which it stops
  Metrics call_metrics_;       // of this call alone

  HeldByPasses held_;

  // Of the open update: what its passes add to the step once it is made, and what they change.
  struct Open {
    std::vector<Metrics> metrics;  // of micro-batches
    int64_t expected = 0, computed = 0, tokens = 0;
    Metrics call_metrics;   // before
    std::set<size_t> rows;  // of this rank, of all parts of the update
  };
  std::optional<Open> open_;
  std::optional<ModelPass> passes_;  // between begin_passes() and end_passes()
  bool ran_out_ = false, repeats_ = false, retried_ = false;
  std::string why_ran_out_;
  TransferCheck check_;
  Denominators denominators_;
  PackedBatches packed_;
  std::map<int32_t, LossResult> losses_;
  size_t backwards_left_ = 0;
  std::optional<double> norm_;
  std::string refusal_;  // why the update must not be applied; "" = it may
};

}  // namespace braid::inline passes

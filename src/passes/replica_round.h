// The rounds of a generation replica whose model lies on several ranks: executes their ops
// (program/expand.h) on one of these ranks. Each rank has an engine of its own, and all engines
// admit, preempt and finish alike, because they have equal tokens: stages pass hidden states on,
// the ranks of the last stage draw and the others are told. Ranks that bring the weights of their
// layers together (ZeRO-3) make as many rounds as each other, whichever replicas they are of. Not
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "passes/model_pass.h"
#include "passes/transfer_check.h"
#include "program/verify_ops.h"
#include "rollout/engine.h"
#include "samples/call_groups.h"

namespace braid::inline passes {

class ReplicaRound : public EngineRanks, private PassEnds {
 public:
  // `rank` is one of the call's; `everyone` carries the messages between stages. REQUIRES: the
  // replica has several ranks, or its weights are brought from several; what the frame and the
  // groups point to, and `everyone`, outlive this; and the ops of the ranks fit each other
  // (verify_round_of()). `change`: as CallWork's.
  static std::unique_ptr<ReplicaRound> create(const CallFrame& frame, DeviceId rank,
                                              const CallGroups& groups, Communicator& everyone,
                                              ChangeOps change = {});

  // The ops of a round, and of the agreement after it.
  Result<EngineRound> round(Model& model, const EngineBatch& batch, const std::vector<KvLayer>& kv,
                            int64_t due, const DrawTokens& draw) override;
  // Every kRoundsBetweenAgreements rounds the ranks compare what they have drawn so far; after a
  // round without tokens they agree on whether memory ran out (agreements_in()).
  Status agree(EngineRound* round) override;
  Result<bool> any(bool here, const std::string& what) override;
  bool leads() const override { return replica_ == nullptr || replica_->index() == 0; }

  // What a rank that draws nothing does in a round of those that it brings weights together with.
  static void pass_by(Model& model);

 private:
  ReplicaRound(const CallFrame& frame, DeviceId rank, const CallGroups& groups,
               Communicator& everyone, ChangeOps change)
      : frame_(frame),
        rank_(rank),
        replica_(groups.replica),
        weights_(groups.weights),
        everyone_(everyone),
        change_(std::move(change)) {}

  Status sample(Model& model, ModelPass& pass, const DrawTokens& draw, EngineRound* out);
  Status tell(const OpGroup& group, EngineRound* out);
  uint64_t seen_with(const std::vector<SampledToken>& drawn) const;
  Result<bool> compare(uint64_t seen, bool ran_out);

  bool empty(int32_t) const override { return false; }
  void passed_by(int64_t) override {}
  Result<TokenBatch> tokens(int32_t batch) override { return batches_[batch]; }
  Status outputs(int32_t, const at::Tensor& hidden_TH) override;
  Result<at::Tensor> loss(int32_t) override;
  std::optional<int64_t> head_rows(int32_t) const override { return std::nullopt; }
  bool cached(int32_t) const override { return true; }
  const std::vector<KvLayer>& caches(int32_t) override { return *caches_; }
  void drop() override { hidden_.clear(); }

  const CallFrame frame_;
  const DeviceId rank_;
  Communicator* const replica_;  // null: this rank alone
  Communicator* const weights_;  // null: they stay
  Communicator& everyone_;
  const ChangeOps change_;
  int64_t rounds_ = 0;
  uint64_t seen_ = 0;  // hash of the tokens of all rounds so far
  // Of the open round.
  Expansion ops_;
  const std::vector<KvLayer>* caches_ = nullptr;
  Status failed_;  // drawing, on this rank
  TransferCheck check_;
  std::vector<TokenBatch> batches_;
  int64_t gathered_rows_ = 0;       // of logits
  std::vector<at::Tensor> hidden_;  // after the last layer, by batch
};

}  // namespace braid::inline passes

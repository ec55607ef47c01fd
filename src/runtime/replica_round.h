// The rounds of a generation replica whose model lies on several ranks: executes their ops
// (program/expand.h) on one of these ranks. Each rank has an engine of its own, and all engines
// admit, preempt and finish alike, because they have equal tokens: stages pass hidden states on,
// the ranks of the last stage draw and the others are told. Not thread-safe.
#pragma once

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "program/expand.h"
#include "rollout/engine.h"
#include "runtime/call_groups.h"

namespace braid {

class ReplicaRound : public EngineRanks {
 public:
  // `rank` is one of the call's; `everyone` carries the messages between stages. REQUIRES: the
  // replica has several ranks; what the frame and the groups point to, and `everyone`, outlive
  // this. Errors: the ops of the ranks do not fit each other.
  static Result<std::unique_ptr<ReplicaRound>> create(const CallFrame& frame, DeviceId rank,
                                                      const CallGroups& groups,
                                                      Communicator& everyone);

  Result<at::Tensor> forward(Model& model, const EngineBatch& batch,
                             const std::vector<KvLayer>& kv) override;
  // Also compares what the ranks have drawn so far, every 64 rounds.
  Status share(std::vector<SampledToken>* drawn) override;

 private:
  ReplicaRound(const CallFrame& frame, DeviceId rank, Communicator& replica, Communicator& everyone)
      : frame_(frame), rank_(rank), replica_(replica), everyone_(everyone) {}

  Result<at::Tensor> receive(const Op& op, const Model& model, int64_t rows);
  Status tell(const OpGroup& group, std::vector<SampledToken>* drawn);
  Status agree();

  const CallFrame frame_;
  const DeviceId rank_;
  Communicator& replica_;
  Communicator& everyone_;
  int64_t rounds_ = 0;
  uint64_t seen_ = 0;  // hash of the tokens of all rounds so far
  // Of the open round.
  Expansion ops_;
  size_t next_ = 0;
  std::list<std::pair<at::Tensor, Pending>> sending_;
};

}  // namespace braid

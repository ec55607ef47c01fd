// What the parts of a session are given to execute a call on this rank: models, groups and ops. Not
// thread-safe.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "passes/inference.h"
#include "passes/training.h"
#include "program/program.h"
#include "program/verify_ops.h"
#include "rollout/engine.h"
#include "samples/call_rows.h"
#include "weights/rank_models.h"

namespace braid::inline passes {

class CallWork {
 public:
  // `everyone` carries the messages between stages; null in a job of one rank. REQUIRES: all
  // outlive this and what it gives.
  // `needs`: what the passes of each call were measured to take. `change`: makes of the ops of this
  // rank others, which nobody verifies; for tests of what becomes of a job that has them.
  CallWork(const Program& program, RankModels& models, const CallRows& rows, Communicator* everyone,
           NeedsOfCalls& needs, ChangeOps change = {})
      : program_(program),
        models_(models),
        rows_(rows),
        everyone_(everyone),
        needs_(needs),
        change_(std::move(change)) {}

  // Of a call that this rank takes part in, and a partition of its samples, which must outlive the
  // work. Errors: ops of the ranks that do not fit each other.
  Result<TrainWork> training(CallId call, const Partition& partition) const;
  Result<InferWork> inference(CallId call, const Partition& partition,
                              SamplePart part = SamplePart::kAll) const;
  // Null where this rank generates alone. Of a call that does not generate, in its layout.
  Result<std::unique_ptr<EngineRanks>> generation(CallId call) const;

 private:
  DeviceId self() const {
    return DeviceId{everyone_ == nullptr ? 0 : static_cast<int>(everyone_->index())};
  }

  CallFrame generating(CallId call) const;
  Result<Expansion> ops_of(const CallFrame& frame, const Partition& partition, bool fused) const;

  const Program& program_;
  RankModels& models_;
  const CallRows& rows_;
  Communicator* everyone_;
  NeedsOfCalls& needs_;
  const ChangeOps change_;
  // Lists that need no second look: by call, whether its passes are fused with another's, and
  // whether they are those of its early part.
  mutable std::map<std::tuple<CallId, bool, bool>, VerifiedShapes> verified_;
  mutable std::set<CallId> verified_rounds_;
  mutable std::map<CallId, CallPlacement> generating_;  // of calls that do something else
};

}  // namespace braid::inline passes

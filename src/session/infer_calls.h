// Runs models over samples without learning, in smaller micro-batches where memory runs out: the
// infer and reward calls of a step, and those of an evaluation. Not thread-safe.
#pragma once

#include "passes/inference.h"
#include "session/step_context.h"

namespace braid::inline session {

// An infer call over the samples of a store.
struct InferOf {
  const Call& call;
  const SampleStore& store;
  CallRows& rows;
  const CallWork& work;
  int64_t step = 0;
  bool own_lengths = false;  // samples are longer or shorter in `store` than `rows` knows
  SamplePart part = SamplePart::kAll;
};

class InferCalls {
 public:
  // REQUIRES: `step` outlives this.
  explicit InferCalls(const StepContext& step);

  // What the call's model gives the samples of this rank.
  Result<InferredRows> run(const InferOf& what);
  // Of the step's samples, as `store` has them, which may be texts read in other tokens: they count
  // as computed.
  Result<InferredRows> run_in_step(const Call& call, const SampleStore& store, SamplePart part);
  // Frees what a failure left.
  void abandon() {
    inference_.abandon();
    inference_.forget_begun();
  }

 private:
  Result<InferWork> work_of(const InferOf& what);
  Result<InferWork> reserved(const InferOf& what);

  const StepContext& step_;
  Inference inference_;
  Partition read_;  // of a call with lengths of its own
};

}  // namespace braid::inline session

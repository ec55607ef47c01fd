// The generations of a step: what their regions do, what they leave in the store, and what all
// ranks come to know of it. Not thread-safe.
#pragma once

#include <functional>

#include "passes/generation.h"
#include "session/call_samples.h"
#include "session/carried_samples.h"

namespace braid::inline session {

class GenerateCalls {
 public:
  // `carried`: null where no generation leaves samples. REQUIRES: all outlive this.
  GenerateCalls(const StepContext& step, const CallSamples& samples, Generation& generation,
                CarriedSamples* carried)
      : step_(step), samples_(samples), generation_(generation), carried_(carried) {}

  // Instructions of the region.
  Status begin(const Call& call);
  Status round(const Call& call);
  Status agree(const Call& call);
  Status end(const Call& call);
  // Whether the replica has no more to do in it.
  bool done(ExitCondition exit) const;
  // What it has generated becomes known to all ranks.
  Status share(const Exchange& shared);

 private:
  Status advance(const Call& call, const std::function<Status()>& act);
  void note_predictions(const Call& call);

  const StepContext& step_;
  const CallSamples& samples_;
  Generation& generation_;
  CarriedSamples* const carried_;
};

}  // namespace braid::inline session

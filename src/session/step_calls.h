// The parts that a session gives the instructions of a step to, each with a state of its own.
#pragma once

#include <functional>
#include <memory>

#include "session/call_samples.h"
#include "session/carried_samples.h"
#include "session/compute_calls.h"
#include "session/fetch_calls.h"
#include "session/generate_calls.h"
#include "session/hand_over_calls.h"
#include "session/infer_calls.h"
#include "session/reward_calls.h"
#include "session/select_calls.h"
#include "session/step_place.h"
#include "session/steps_ahead.h"
#include "session/train_calls.h"
#include "session/weight_calls.h"

namespace braid::inline session {

struct StepCalls {
  // `everyone`: all ranks of the job, or null for one; `checked`: as FetchCalls takes it. REQUIRES:
  // all outlive this.
  StepCalls(const StepContext& step, Communicator* everyone, const RunData& data, Scoring& scoring,
            std::function<Status()> checked);

  void begin_step();
  // Frees what a failure left.
  void abandon();

  FieldAccount account;               // of the step's samples
  std::unique_ptr<StepsAhead> ahead;  // null where no call works ahead
  CallSamples samples;
  Generation generation;
  std::unique_ptr<CarriedSamples> carried;  // null where no generation leaves samples
  FetchCalls fetches;
  GenerateCalls generates;
  HandOverCalls hand_over;
  InferCalls infers;
  RewardCalls rewards;
  ComputeCalls computes;
  SelectCalls selects;
  TrainCalls trains;
  StepTimeline timeline;
  StepPlace place;
  WeightCalls weights;
};

}  // namespace braid::inline session

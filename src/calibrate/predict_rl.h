// The time of one reinforcement-learning step from the prices of its phases, for placements that
// share or split devices. A closed form for validation; the simulator composes phases instruction
// by instruction. Pure; thread-safe.
#pragma once

#include "pricing/predict_generate.h"
#include "pricing/predict_train.h"

namespace braid::inline calibrate {

enum class RlPlacement { kColocated, kSplit, kOneStepOff, kAsync };

struct RlWork {
  RlPlacement placement = RlPlacement::kColocated;
  GenerateWork generate;
  GenerateLayout generate_layout;
  TrainStepWork train;  // global_batch = sequences per step, seq_len = mean prompt + response
  TrainLayout train_layout;
  double mini_batch = 0;   // sequences per optimizer update
  int logprob_passes = 2;  // old policy and reference
  bool training_engine_generates =
      false;  // generation gathers the training weights (hybrid engine)
  friend bool operator==(const RlWork&, const RlWork&) = default;
};

struct RlTime {
  double generate_s = 0;
  double logprob_s = 0;  // all passes of the actor and reference
  double critic_s = 0;   // critic and reward, inference and training
  double train_s = 0;
  double reshard_s = 0;
  double host_s = 0;
  double total_s = 0;  // under the placement
};

// `critic` may be null: no critic or reward model. `generate_device` differs from `train_device` in
// precision only. Errors: weights that do not fit the generation engine.
Result<RlTime> rl_step_time(const ModelSize& actor, const ModelSize* critic, const RlWork& work,
                            const DeviceModel& train_device, const DeviceModel& generate_device);

}  // namespace braid::inline calibrate

// The train calls of a step: the passes of each, alone or in the common order of a fused schedule,
// what a lack of memory makes of them, and their updates. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "passes/training.h"
#include "session/step_context.h"

namespace braid::inline session {

class TrainCalls {
 public:
  // REQUIRES: `step` outlives this.
  explicit TrainCalls(const StepContext& step) : step_(step) {}

  // Instructions of the call's region.
  Status begin(const Call& call, SamplePart part);
  // To the end of a part of its samples.
  Status go_on(const Call& call, SamplePart part);
  // Opens the call again where `progress` of it was taken, to the end of that part.
  Status resume(const Call& call, SamplePart part, const TrainingProgress& progress);
  Status run_passes(const Call& call);
  Status run_fused(const FusedCalls& fused);
  Status reduce(CallId call) { return open(call).reduce(); }
  Status agree(const Call& call);
  Status update(const Call& call);
  Status gather(CallId call) { return open(call).gather(); }
  bool done(CallId call) const { return at(call).done(); }

  // Of a call of the step. REQUIRES: this rank takes part in it.
  const Training& at(CallId call) const { return trainings_.at(call); }
  // How far each is, by name.
  std::map<std::string, TrainingProgress> progress() const;
  void begin_step() {
    trainings_.clear();
    trained_early_ = 0;
  }
  // Frees what a failure left.
  void abandon();

 private:
  bool is_first(const Call& call) const;
  // That the step's samples are recent enough, and how old they are.
  Status check_age(const Call& call);
  Training& open(CallId call);
  // The part of the call's samples that its open work is of.
  SamplePart part_of(CallId call) const;
  // Samples that it has trained before the generation ended.
  void note_early(CallId call, SamplePart part);
  std::optional<size_t> end_of(CallId call, SamplePart part);
  Result<TrainWork> work_of(const Call& call);
  Result<bool> reserve_fused(const FusedCalls& fused);
  Status run_one_by_one(const FusedCalls& fused);
  // The calls' passes run one after the other from here on. All their ranks come here.
  void run_apart(const FusedCalls& fused, const std::string& why);
  DeviceId self() const { return DeviceId{static_cast<int>(step_.rank())}; }

  const StepContext& step_;
  std::map<CallId, Training> trainings_;    // of this rank
  SamplePart streamed_ = SamplePart::kAll;  // of an update that begins beside the generation
  int64_t trained_early_ = 0;
};

}  // namespace braid::inline session

// A training session of one process: the parts that a program's instructions are given to, and
// what they share. It only dispatches; each part has its state and names what it reads and changes.
// Not thread-safe. Between two steps the roles and the position are its whole state; within one
// also the samples and how far the step is. save_state() and load_state() cover all of it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "config/options.h"
#include "program/program.h"
#include "runtime/generation.h"
#include "runtime/inference.h"
#include "runtime/interpreter.h"
#include "runtime/load_models.h"
#include "runtime/open_step.h"
#include "runtime/run_data.h"
#include "runtime/run_position.h"
#include "runtime/sample_store.h"
#include "runtime/scoring.h"
#include "runtime/training.h"

namespace braid {

// Every function that the graph names exists in algo/; else an error that lists the known ones.
Status check_functions(const Graph& graph);

class Session : public Executor {
 public:
  // Loads everything that the graph needs; errors name the config key or the file.
  static Result<std::unique_ptr<Session>> create(const Config& config, const Program& program);

  // One step of the program, or the rest of one that is open. Returns the step's metrics by name.
  // After a failure the session is as it was before the step where that had made no update, else
  // the step is open: it goes on where its last update ended.
  Result<std::map<std::string, double>> run_step(const InstructionObserver& observer = {});
  int64_t step() const { return position_.step; }  // steps completed
  bool step_open() const { return open_.has_value(); }

  // Texts and numbers of a few samples of the last step, for samples.jsonl. REQUIRES: a step was
  // run.
  std::vector<Json> sample_rows(size_t count) const;

  // Writes each trained role as a Hugging Face folder below `folder`.
  Status export_models(const std::string& folder) const;

  // Everything that continuing needs; the tensors alias the session's own. Takes it over bit for
  // bit: a state of another configuration, program, data or frozen weights is an error that names
  // the difference, and after an error the session must not be used. Saving fails where a failure
  // came in the middle of an update, and where the algorithm's state is not finite (kStopped).
  Result<CheckpointState> save_state() const;
  Status load_state(const CheckpointState& state);

  const Roles& roles() const { return roles_; }
  // Empty under rollout.replay, which brings the rewards.
  const RewardModels& reward_models() const { return scoring_.models(); }
  const SampleStore& store() const { return store_; }

  Status run_call(const Call& call) override;
  Status begin_region(const Call& call) override;
  Status generate_step(const Call& call) override;
  Status run_schedule(const Call& call) override;
  Status agree(const Call& call) override;
  Status optimizer_step(const Call& call) override;
  bool region_done(ExitCondition exit) const override;
  Status end_region(const Call& call) override;
  void passed(size_t next) override;
  Status reopen_region(const Call& call) override;

 private:
  struct Loaded;  // what create() reads before there is a session
  Session(const Config& config, const Program& program, Loaded loaded);

  void begin_step();
  void abandon_step();
  std::map<std::string, double> finish_step();
  std::map<std::string, int64_t> skipped() const;
  void set_skipped(const std::map<std::string, int64_t>& skipped);

  Status fetch(const Call& call);
  Status infer(const Call& call);
  Status reward(const Call& call);
  Status compute(const Call& call);

  const Config config_;
  const Program program_;
  const RunData data_;
  RunPosition position_;
  SampleStore store_;
  Roles roles_;
  Generation generation_;
  Inference inference_;
  Training training_;
  Scoring scoring_;
  Json frozen_;  // fingerprints of weights that are not trained

  // Of the step.
  Metrics metrics_;
  std::map<std::string, double> seconds_;  // of its calls
  StepProgress start_;                     // before it
  int64_t updates_before_ = 0;
  int64_t updates_passed_ = 0;  // those whose bookkeeping is complete
  int64_t trained_before_ = 0;
  std::optional<StepProgress> open_;  // after its last update; none before the first
};

}  // namespace braid

// A training session of one process: models, data, rewards and the sample store, and the Executor
// that a program runs on. Not thread-safe. Between two steps the models, optimizers, counters and
// algo_state are its whole state: save_state() and load_state() cover all of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "checkpoint/checkpoint.h"
#include "config/options.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "program/program.h"
#include "reward/reward.h"
#include "rollout/engine.h"
#include "runtime/interpreter.h"
#include "runtime/load_models.h"
#include "runtime/rollout_file.h"
#include "runtime/sample_store.h"

namespace braid {

// What the reward call found, per sample.
struct ScoredSamples {
  std::vector<double> raw;    // weighted sum of the list; NaN where the sample was dropped
  std::vector<double> total;  // after clipping and penalties: what training uses
  std::vector<bool> kept;     // false: on_error: drop applied
  std::map<std::string, std::vector<double>> by_name;
  int64_t timeouts = 0, errors = 0;
};

// Every function that the graph names exists in algo/; else an error that lists the known ones.
Status check_functions(const Graph& graph);

class Session : public Executor {
 public:
  // Loads everything that the graph needs; errors name the config key or the file.
  static Result<std::unique_ptr<Session>> create(const Config& config, const Program& program);

  // One step of the program. Returns the step's metrics by name.
  Result<std::map<std::string, double>> run_step(const InstructionObserver& observer = {});
  int64_t step() const { return step_; }

  // Texts and numbers of a few samples of the last step, for samples.jsonl. REQUIRES: a step was
  // run.
  std::vector<Json> sample_rows(size_t count) const;

  // Writes each trained role as a Hugging Face folder below `folder`.
  Status export_models(const std::string& folder) const;

  // Everything that continuing needs; the tensors alias the session's own. Takes it over bit for
  // bit: a state of another configuration, program or data is an error that names the difference,
  // and after an error the session must not be used.
  Result<CheckpointState> save_state() const;
  Status load_state(const CheckpointState& state);

  const Roles& roles() const { return roles_; }
  // Empty under rollout.replay, which brings the rewards.
  const RewardModels& reward_models() const { return reward_models_; }
  const SampleStore& store() const { return store_; }

  Status run_call(const Call& call) override;
  Status begin_region(const Call& call) override;
  Status generate_step(const Call& call) override;
  Status run_schedule(const Call& call) override;
  Status agree(const Call& call) override;
  Status optimizer_step(const Call& call) override;
  bool region_done(ExitCondition exit) const override;
  Status end_region(const Call& call) override;

 private:
  Session(const Config& config, const Program& program);
  Status load_roles();
  Result<ModelInstance> load_role(const RoleSpec& spec);
  Status load_data();
  Status load_rewards();
  // To be called before the weights of a trained role change.
  Status keep_frozen_copies(const std::string& changing);

  // Whether the rewards of the list are asked; a replayed rollout brings their values.
  bool scores() const { return generates(program_.graph) && config_.rollout.replay.empty(); }

  Status fetch(const Call& call);
  Status infer(const Call& call);
  Status compute(const Call& call);

  Status begin_generate(const Call& call);
  Status begin_replay();
  Status finish_generate(const Call& call);
  SamplingOptions sampling_options(const Model& model) const;
  Status set_stop_check();

  Status score_rewards(const Call& call);
  Result<std::vector<RewardSample>> reward_samples() const;
  Result<ScoredSamples> scored_samples();
  Result<ScoredSamples> replayed_samples() const;
  void add_penalties(ScoredSamples& scored) const;
  Status record_rollout(const ScoredSamples& scored);

  Status begin_train(const Call& call);
  std::vector<std::vector<size_t>> micro_batches(const std::vector<size_t>& rows) const;
  Denominators denominators(const std::vector<size_t>& rows) const;
  int64_t row_tokens(const std::vector<size_t>& rows) const;
  Result<ModelOutputs> model_outputs(Model& model, const std::vector<size_t>& rows) const;
  Result<at::Tensor> micro_loss(const Call& call, const std::vector<size_t>& rows,
                                const Denominators& denominators);
  AdamW::StepReport apply_update(const Call& call);
  Status refuse_update(const Call& call);
  Result<std::string> write_offending_batch(const Call& call);
  int64_t idle_steps(const Call& call) const;

  Status check_state(const Json& numbers) const;
  Status load_role_state(const std::string& name, const CheckpointState& state);

  void note_mismatch();
  void note_lengths();
  void note_rewards(const ScoredSamples& scored);

  Config config_;
  Program program_;
  SampleStore store_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<DataSet> data_;
  Roles roles_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  RewardModels reward_models_;
  AlgoState algo_state_;
  Metrics metrics_;
  int64_t step_ = 0;
  int64_t cursor_ = 0;       // position in the data
  int64_t tokens_seen_ = 0;  // prompt and response tokens of all steps

  // Of the step.
  int64_t trained_tokens_ = 0;  // of all forwards and backwards

  // Of the open region.
  std::unique_ptr<Engine> engine_;  // null under rollout.replay
  std::map<int64_t, Generated> generated_;
  bool drained_ = false;
  std::vector<std::vector<size_t>> minibatches_;
  size_t minibatch_ = 0;
  bool stop_training_ = false;
  Metrics region_metrics_;     // of this train call alone
  std::string refusal_;        // why the present update must not be applied; "" = it may
  int64_t refused_step_ = -1;  // the last step whose offending batches were written

  std::optional<RolloutRecorder> recorder_;
  std::optional<RolloutReplay> replay_;
  std::map<int64_t, RolloutRow> replayed_;  // of the step, by sample
};

}  // namespace braid

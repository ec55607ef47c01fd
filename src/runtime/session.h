// A training session of one process: models, data, rewards and the sample store, and the Executor
// that a program runs on. Not thread-safe. State that a checkpoint must hold: models, optimizers,
// algo_state, cursor, step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "config/options.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "nn/model.h"
#include "program/program.h"
#include "reward/reward.h"
#include "rollout/engine.h"
#include "runtime/interpreter.h"
#include "runtime/sample_store.h"
#include "train/optimizer.h"

namespace braid {

// A model and, when it is trained, its optimizer.
struct RoleState {
  std::unique_ptr<Model> model;
  std::unique_ptr<AdamW> optimizer;
  std::string source_folder;  // for export; "" for random weights
};

class Session : public Executor {
 public:
  // Loads everything that the graph needs; errors name the config key or the file.
  static Result<std::unique_ptr<Session>> create(const Config& config, const Program& program);

  // One step of the program. Returns the step's metrics by name.
  Result<std::map<std::string, double>> run_step();
  int64_t step() const { return step_; }

  // Texts and numbers of a few samples of the last step, for samples.jsonl.
  std::vector<Json> sample_rows(size_t count) const;

  // Writes each trained role as a Hugging Face folder below `folder`.
  Status export_models(const std::string& folder) const;

  const std::map<std::string, RoleState>& roles() const { return roles_; }
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
  Result<RoleState> load_role(const RoleSpec& spec);
  Status load_data();
  Status load_rewards();

  Status fetch(const Call& call);
  Status infer(const Call& call);
  Status score_rewards(const Call& call);
  Status compute(const Call& call);
  Status begin_generate(const Call& call);
  Status finish_generate(const Call& call);
  Status begin_train(const Call& call);
  Result<at::Tensor> micro_loss(const Call& call, const std::vector<size_t>& rows,
                                const Denominators& denominators);
  Result<std::vector<RewardSample>> reward_samples() const;
  Result<std::vector<RewardOutcome>> model_scores(Model& model) const;
  void note_mismatch();
  void note_lengths();

  Config config_;
  Program program_;
  SampleStore store_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<DataSet> data_;
  std::map<std::string, RoleState> roles_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  std::vector<std::unique_ptr<Model>>
      reward_models_;  // aligned with rewards_; null for other types
  AlgoState algo_state_;
  Metrics metrics_;
  int64_t step_ = 0;
  int64_t cursor_ = 0;   // position in the data
  int64_t skipped_ = 0;  // optimizer steps refused in a row

  // Of the open region.
  std::unique_ptr<Engine> engine_;
  std::map<int64_t, Generated> generated_;
  bool drained_ = false;
  std::vector<std::vector<size_t>> minibatches_;
  size_t minibatch_ = 0;
  bool stop_training_ = false;
};

}  // namespace braid

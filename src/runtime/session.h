// A training session of one rank: the parts that a program's instructions are given to, and what
// they share. It only dispatches; each part has its state and names what it reads and changes.
// Not thread-safe. Between two steps the roles and the position are its whole state: save_state()
// and load_state() cover all of it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "config/options.h"
#include "program/program.h"
#include "runtime/call_rows.h"
#include "runtime/field_exchange.h"
#include "runtime/generation.h"
#include "runtime/inference.h"
#include "runtime/interpreter.h"
#include "runtime/load_models.h"
#include "runtime/rank_report.h"
#include "runtime/run_data.h"
#include "runtime/run_position.h"
#include "runtime/sample_store.h"
#include "runtime/scoring.h"
#include "runtime/training.h"

namespace braid {

// Every function that the graph names exists in algo/; else an error that lists the known ones.
Status check_functions(const Graph& graph);

// Whether this runtime executes the program; the error names the first thing that it does not.
Status check_executable(const Program& program);

class Session : public Executor {
 public:
  // Loads everything that the graph needs; errors name the config key or the file. `world` is the
  // job that this process is a rank of, with as many ranks as the program, or null for a program of
  // one rank. REQUIRES: it outlives the session.
  static Result<std::unique_ptr<Session>> create(const Config& config, const Program& program,
                                                 World* world = nullptr);

  // One step of the program. Returns the step's metrics by name, the same on every rank.
  Result<std::map<std::string, double>> run_step(const InstructionObserver& observer = {});
  int64_t step() const { return position_.step; }
  // Seconds of each call of the last step, [rank]; a rank has those that it takes part in.
  const std::vector<std::map<std::string, double>>& rank_seconds() const { return rank_seconds_; }
  // Bytes that each rank has held at most, [rank].
  const std::vector<double>& rank_peaks() const { return rank_peaks_; }
  // "" or the signal that asked a rank of the job to stop by the end of the last step.
  const std::string& stop_request() const { return report_.stop_signal; }

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
  const RewardModels& reward_models() const { return scoring_.models(); }
  const SampleStore& store() const { return store_; }

  Status before_call(CallId call) override;
  Status after_call(CallId call) override;
  Status run_call(const Call& call) override;
  Status begin_region(const Call& call) override;
  Status generate_step(const Call& call) override;
  Status run_schedule(const Call& call) override;
  Status reduce(const Call& call) override;
  Status agree(const Call& call) override;
  Status optimizer_step(const Call& call) override;
  bool region_done(ExitCondition exit) const override;
  Status end_region(const Call& call) override;

 private:
  struct Loaded;  // what create() reads before there is a session
  Session(const Config& config, const Program& program, World* world, Loaded loaded);

  CallId id_of(const Call& call) const;
  int64_t rank() const { return exchange_.rank(); }
  bool takes_part(CallId call) const { return rows_.dp_rank(call, rank()) >= 0; }
  // Rows that each rank scores: all on one rank, unless a model scores them.
  std::vector<Rows> scored_rows(CallId call);
  Result<Communicator*> data_group(CallId call);

  Status fetch(const Call& call);
  Status infer(const Call& call);
  Status reward(const Call& call);
  Status share_rewards(const Call& call);
  Status compute(const Call& call);
  Status share_algo_state(CallId call);
  // Everyone's metrics and times as one: those of the step from here on.
  Status merge_reports();
  std::map<std::string, double> step_row();

  const Config config_;
  const Program program_;
  World* const world_;
  const RunData data_;
  RunPosition position_;
  SampleStore store_;
  CallRows rows_;
  FieldExchange exchange_;
  Metrics metrics_;       // of the step
  RankReport report_;     // of the step: this rank's until merge_reports(), then everyone's
  ScoredSamples scored_;  // what this rank found in the reward call
  std::vector<std::map<std::string, double>> rank_seconds_;
  std::vector<double> rank_peaks_;
  Roles roles_;
  Generation generation_;
  Inference inference_;
  Training training_;
  Scoring scoring_;
};

}  // namespace braid

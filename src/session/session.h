// A training session of one rank: the parts that a program's instructions are given to, and what
// they share. It only dispatches; each part has its state and names what it reads and changes.
// Not thread-safe. Between two steps the roles and the position are its whole state; within one
// also the samples and how far the step is. save_state() and load_state() cover all of it.
//
// In a job of several ranks the first one leads: its run_step(), save(), finish_saves() and
// export_models() take all ranks, which come along in follow(). Steps are saved in whole there,
// never open.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/run_position.h"
#include "checkpoint/checkpoint_reader.h"
#include "comm/world.h"
#include "config/options.h"
#include "interpret/interpreter.h"
#include "scoring/evaluate.h"
#include "session/job_evaluation.h"
#include "session/job_report.h"
#include "session/job_saves.h"
#include "session/saved_state.h"
#include "session/step_calls.h"
#include "session/step_reach.h"

namespace braid::inline session {

// Every function that the graph names exists in algo/; else an error that lists the known ones.
Status check_functions(const Graph& graph);

// Whether this runtime executes the program; the error names the first thing that it does not.
Status check_executable(const Program& program);

class Session : public Executor {
 public:
  // Loads everything that the graph needs; errors name the config key or the file. `world` is the
  // job that this process is a rank of, with as many ranks as the program, or null for a program of
  // one rank. REQUIRES: it outlives the session. `change`: as CallWork takes it.
  static Result<std::unique_ptr<Session>> create(const Config& config, const Program& program,
                                                 World* world = nullptr,
                                                 const ChangeOps& change = {});

  // One step of the program, or the rest of one that is open. Returns the step's metrics by name.
  // After a failure the session of one rank is as it was before the step where that had made no
  // update, else the step is open: it goes on where its last update ended.
  Result<std::map<std::string, double>> run_step(const InstructionObserver& observer = {});
  int64_t step() const { return position_.step; }  // steps completed
  bool step_open() const { return reach_.open().has_value(); }

  int64_t ranks() const { return exchange_.ranks(); }
  int64_t rank() const { return exchange_.rank(); }
  // On the first rank: when a generation is handed over (fusion.migrate_below_samples) from the
  // next step on, on all ranks; results do not depend on it. REQUIRES: the program hands over.
  int64_t hand_over_below() const { return calls_.hand_over.below(); }
  void set_hand_over_below(int64_t samples) { calls_.hand_over.set_below(samples); }

  // On the other ranks: does what the first rank begins, until it dismisses them.
  Status follow();
  // On the first rank: ends follow(). Nothing in a job of one rank.
  Status dismiss();
  bool dismissed() const { return dismissed_; }
  // On the first rank: whether the others wait for what comes next, so that it can still save. They
  // do so after a failure that all ranks know of, as after one that came on this rank alone while
  // they were waiting.
  bool others_wait() const { return !talk_.together(); }
  // Whether all ranks know of the last failure, and have it too.
  bool failed_alike() const { return talk_.failed_alike(); }
  // On the first rank: bytes that the first ranks (rank_report.h) have held at most in the last
  // step, by rank.
  const std::map<int64_t, double>& rank_peaks() const { return report_.rank_peaks(); }
  // Likewise while checkpoints and exports were made; empty before an export that took all ranks.
  const std::map<int64_t, double>& saving_peaks() const { return saves_.peaks(); }
  // On the first rank: what the ranks did and held in the last step, and how long its responses
  // were (tokens, ascending): {"step", "seconds", "ranks": [...], "responses": [...]}, for
  // ranks.jsonl. Null where the step is not recorded (report.recorded_steps).
  Json step_record() const;
  // On the first rank: "" or the signal that asked a rank of the job to stop by the end of the last
  // step.
  const std::string& stop_request() const { return report_.stop_request(); }

  // The policy's answers to data.eval, scored by the rewards: on the first rank, where the others
  // follow. Nothing of the session changes. REQUIRES: eval.* asks for evaluations.
  Result<EvalReport> evaluate();

  // Before the first step, on all ranks together: where memory is limited and train.rehearse says
  // so, runs what takes most of it once (rehearsal.h). kInfeasible where that does not fit, with
  // bytes by owner and the keys that would help.
  Status rehearse();

  // Texts and numbers of the first samples of the last step, for samples.jsonl. REQUIRES: a step
  // was run.
  Result<std::vector<Json>> sample_rows(size_t count);

  // Writes each trained role as a Hugging Face folder below `folder`. A role that the first rank
  // has in part comes to it layer by layer, through files in the folder of the run.
  Status export_models(const std::string& folder);

  // Writes a checkpoint of the present state, of each rank its share, with the metrics of the last
  // step and `more` in its numbers. With checkpoint.async it is written beside what follows: the
  // next save(), or finish_saves(), waits for it and returns what failed. Fails where a failure
  // came in the middle of an update, and where the algorithm's state is not finite (kStopped).
  Status save(const std::map<std::string, double>& metrics, const Json& more = Json::object());
  // Waits until what was begun is committed. Nothing where that is so.
  Status finish_saves();
  // Whether one that this rank began may not be committed.
  bool saves_open() const { return saves_.open(); }

  // Everything that continuing needs, of this rank's share of the weights; the tensors may alias
  // the session's own.
  Result<CheckpointState> save_state() const;
  // Bytes of the tensors of all shares between two steps, on any rank alone.
  Result<int64_t> saved_bytes() const { return state_.bytes(); }
  // Takes a state over bit for bit, of the weights what is here; all ranks call it. A state of
  // another configuration, graph, data or frozen weights is an error that names the difference, and
  // after an error the session must not be used.
  Status load_state(CheckpointReader saved);

  const Roles& roles() const { return models_->roles(); }
  // Those that are no role of the graph.
  const RewardModels& reward_models() const { return scoring_.models(); }
  const SampleStore& store() const { return store_; }
  const DataSet& data() const { return data_.data; }
  // Of a train call of the last step. REQUIRES: this rank takes part in it.
  const Training& training(CallId call) const { return calls_.trains.at(call); }

  Status execute(const Instruction& instruction) override;
  Status begin_ahead(const Instruction& instruction) override;
  Status wait_for(const Instruction& instruction) override;
  bool region_done(const Instruction& end) const override;
  Status reopen(const Instruction& begin) override;
  void passed(size_t next) override;

 private:
  struct Loaded;  // what create() reads before there is a session
  Session(const Config& config, const Program& program, World* world, Loaded loaded);

  using Command = RankTalk::Command;
  StepContext context();
  Roles& own_roles() { return models_->roles(); }

  // Instructions, by their kinds.
  Status act(const Instruction& instruction);
  Status share(int32_t entry);
  Status run_call(const Call& call, SamplePart part);
  Status execute_call(const Call& call, SamplePart part);
  Status begin_region(const Call& call, SamplePart part);
  Status end_region(const Call& call, SamplePart part);
  // Whether there are samples for an instruction in this turn of the list.
  bool has_work(const Instruction& instruction) const;
  void balance(const Call& call);
  void note_memory();  // between two calls, where the step is recorded

  // Of a step.
  void begin_step();
  void abandon_step();
  Result<std::map<std::string, double>> take_step(const InstructionObserver& observer);
  Status run_turn(const Turn& turn, const CallSeconds& timer, const InstructionObserver& noted);
  // A generation is complete: what it drew ahead waits for its step, what it left for the next one.
  void keep_generated();
  // Makes what is lacking of the rollouts that wait; then the first of them are the step's.
  Status fill_ahead(const CallSeconds& timer, const InstructionObserver& noted);
  std::map<std::string, int64_t> skipped() const;
  void set_skipped(const std::map<std::string, int64_t>& skipped);

  // Of the whole.
  Status announce(Command command) const;
  Status run_command(Command command);
  Status unless_alike(const Status& status) const;
  Status begin_save(const std::map<std::string, double>& metrics, const Json& more);

  const Config config_;
  const Program program_;
  const RunData data_;
  RunPosition position_;
  SampleStore store_;
  CallRows rows_;
  FieldExchange exchange_;
  SampleReader reader_;
  std::unique_ptr<RankModels> models_;
  NeedsOfCalls needs_;
  CallWork work_;
  Scoring scoring_;
  StepRecord record_;
  mutable RankTalk talk_;   // saving and exporting are said to the others too
  const StepContext step_;  // of all of these

  StepCalls calls_;
  SavedState state_;
  JobEvaluation evaluation_;
  JobReport report_;
  const at::Device device_;  // of its tensors
  Turn turn_;
  StepReach reach_;
  double longest_step_s_ = 0;  // so far
  bool dismissed_ = false;
  JobSaves saves_;  // last: what it writes may alias the above
};

}  // namespace braid::inline session

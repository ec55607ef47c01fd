// A training session of one rank: the parts that a program's instructions are given to, and what
// they share. It only dispatches; each part has its state and names what it reads and changes.
// Not thread-safe. Between two steps the roles and the position are its whole state; within one
// also the samples and how far the step is. save_state() and load_state() cover all of it.
//
// In a job of several ranks the first one leads: its run_step(), save_state() and export_models()
// take all ranks, which come along in follow(). Steps are saved in whole there, never open.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "algo/run_position.h"
#include "checkpoint/checkpoint.h"
#include "comm/world.h"
#include "config/options.h"
#include "interpret/interpreter.h"
#include "passes/call_work.h"
#include "passes/generation.h"
#include "passes/inference.h"
#include "passes/training.h"
#include "program/program.h"
#include "samples/call_rows.h"
#include "samples/fetch_samples.h"
#include "samples/field_exchange.h"
#include "samples/sample_store.h"
#include "scoring/evaluate.h"
#include "scoring/scoring.h"
#include "session/open_step.h"
#include "session/rank_report.h"
#include "weights/rank_models.h"

namespace braid::inline passes {
class Rehearsal;
struct Shortage;
}  // namespace braid::inline passes

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
  bool step_open() const { return open_.has_value(); }

  int64_t ranks() const { return exchange_.ranks(); }
  // On the other ranks: does what the first rank begins, until it dismisses them.
  Status follow();
  // On the first rank: ends follow(). Nothing in a job of one rank.
  Status dismiss();
  bool dismissed() const { return dismissed_; }
  // On the first rank: whether the others wait for what comes next, so that it can still save. They
  // do so after a failure that all ranks know of, as after one that came on this rank alone while
  // they were waiting.
  bool others_wait() const { return !together_; }
  // Whether all ranks know of the last failure, and have it too.
  bool failed_alike() const { return failed_alike_; }
  // Seconds of each call of the last step, [rank]; a rank has those that it takes part in.
  const std::vector<std::map<std::string, double>>& rank_seconds() const { return rank_seconds_; }
  // Bytes that each rank has held at most, [rank].
  const std::vector<double>& rank_peaks() const { return rank_peaks_; }
  // "" or the signal that asked a rank of the job to stop by the end of the last step.
  const std::string& stop_request() const { return report_.stop_signal; }

  // The policy's answers to data.eval, scored by the rewards: on the first rank, where the others
  // follow. Nothing of the session changes. REQUIRES: eval.* asks for evaluations.
  Result<EvalReport> evaluate();

  // Before the first step, on all ranks together: where memory is limited and train.rehearse says
  // so, runs what takes most of it once (rehearsal.h). kInfeasible where that does not fit, with
  // bytes by owner and the keys that would help.
  Status rehearse();

  // Texts and numbers of a few samples of the last step, for samples.jsonl. REQUIRES: a step was
  // run.
  std::vector<Json> sample_rows(size_t count) const;

  // Writes each trained role as a Hugging Face folder below `folder`.
  Status export_models(const std::string& folder) const;

  // Everything that continuing needs; the tensors alias the session's own. Takes it over bit for
  // bit: a state of another configuration, graph, data or frozen weights is an error that names
  // the difference, and after an error the session must not be used. Saving fails where a failure
  // came in the middle of an update, and where the algorithm's state is not finite (kStopped).
  Result<CheckpointState> save_state() const;
  Status load_state(const CheckpointState& state);

  const Roles& roles() const { return models_->roles(); }
  // Those that are no role of the graph.
  const RewardModels& reward_models() const { return scoring_.models(); }
  const SampleStore& store() const { return store_; }
  const DataSet& data() const { return data_.data; }
  // Of a train call of the last step. REQUIRES: this rank takes part in it.
  const Training& training(CallId call) const { return trainings_.at(call); }

  Status execute(const Instruction& instruction) override;
  Status begin_ahead(const Instruction& instruction) override;
  Status wait_for(const Instruction& instruction) override;
  bool region_done(const Instruction& end) const override;
  Status reopen(const Instruction& begin) override;
  void passed(size_t next) override;

 private:
  struct Loaded;  // what create() reads before there is a session
  Session(const Config& config, const Program& program, World* world, Loaded loaded);

  // An infer call over the samples of a store.
  struct InferOf {
    const Call& call;
    const SampleStore& store;
    CallRows& rows;
    const CallWork& work;
    int64_t step = 0;
  };

  CallId id_of(const Call& call) const {
    return CallId{static_cast<int32_t>(&call - program_.graph.calls.data())};
  }
  // Instructions, by their kinds.
  Status share(int32_t entry);
  Status begin_exchange(int32_t entry);
  Status run_call(const Call& call);
  Status begin_region(const Call& call);
  Status generating(const Call& call, const std::function<Status()>& act);
  Status run_passes(const Call& call);
  Status run_woven(const FusedCalls& fused);
  Result<bool> reserve_woven(const FusedCalls& fused);
  // The calls' passes run one after the other from here on. All their ranks come here.
  void run_apart(const FusedCalls& fused, const std::string& why);
  const FusedCalls& pair_of(CallId call) const;
  Status agree(const Call& call);
  Status update(const Call& call);
  Status end_region(const Call& call);
  Status begin_load(const Instruction& load);
  Status offload(int32_t state);
  void note_instruction(size_t index);
  // Where the rank is meanwhile is told to those who watch it.
  Status moving_weights(const std::function<Status()>& move);
  Status execute_call(const Call& call);
  Status end_generation(const Call& call);
  void leave_call(const Call& call);
  int64_t rank() const { return exchange_.rank(); }
  Training& open_training(CallId call);
  bool leads(CallId call) const;
  bool runs_beside_earlier(CallId call) const;
  bool takes_part(CallId call) const { return rows_.dp_rank(call, rank()) >= 0; }
  // The account of who holds what: what a call has written, and all of the program's exchanges
  // before an entry.
  void note_written(CallId call);
  void account(int32_t entry);
  // Where messages say that this rank is within the step.
  void note_call(const Call& call, const std::string& instruction) const;
  Result<TrainWork> train_work(const Call& call);
  // Why micro-batches become smaller.
  static constexpr const char* kDeclared = "what the next ones declare is not free";
  static constexpr const char* kElsewhere = "on another rank";
  static Status too_little_memory(const std::string& why);
  // Memory is not there for a mini-batch of a call on some rank, `why` where it is this one:
  // smaller micro-batches from here on, and whether there are any. All ranks of the call come here.
  bool cut_smaller(const Call& call, CallRows& rows, size_t minibatch, const std::string& why);
  Result<InferWork> reserved_infer_work(const InferOf& what);
  Roles& own_roles() { return models_->roles(); }
  Communicator* everyone() const { return exchange_.everyone(); }

  std::string shortage_text(const Shortage& shortage, const Rehearsal& rehearsal) const;
  void begin_step();
  void abandon_step();
  std::map<std::string, int64_t> skipped() const;
  void set_skipped(const std::map<std::string, int64_t>& skipped);

  // What the first rank of a job begins: all ranks come along.
  enum class Command : int32_t { kStep, kEvaluate, kSave, kExport, kDismiss };
  void note_begin(Command command) const;
  // What this rank alone found to fail is kept until the point at which all ranks hear of it.
  Status until_told(Status own);
  // The texts of all ranks, or the first failure that one of them kept: the same on all.
  Result<std::vector<std::string>> gather_or_fail(const std::string& mine, const std::string& what);
  // A failure of a call that the ranks of the call have decided alike; `own`: why, where it came
  // from this rank. Where others do not know of it, it is this rank's.
  Status fail_alike(CallId call, const Status& decided, const Status& own);
  Status announce(Command command) const;
  Result<std::map<std::string, RoleTensors>> whole_roles() const;
  Result<std::map<std::string, double>> take_step(const InstructionObserver& observer);

  Result<EvalReport> take_evaluation();
  Result<std::vector<Generated>> evaluated_responses();
  Result<std::vector<Generated>> responses_in_layout(CallId generate);
  Result<std::vector<Generated>> responses_of_first_rank();
  Result<std::vector<std::vector<RewardOutcome>>> evaluated_scores(
      const std::vector<RewardSample>& samples);
  Result<std::vector<double>> evaluated_by(const Call& call,
                                           const std::vector<RewardSample>& samples);

  Status fetch(const Call& call);
  // What data_check_ has found since the last step.
  Status follow_data_check();
  Json own_data_identity() const;
  Result<InferredRows> inferred(const InferOf& what);
  Result<InferredRows> inferred_in_step(const Call& call, const SampleStore& store);
  // What the model of a reward call gives, which may read texts.
  Result<InferredRows> scored_by_model(const Call& call);
  Status infer(const Call& call);
  Status reward(const Call& call);
  bool asks_beside_model(const Call& call) const;
  Status share_values(std::map<size_t, double>* by_row);
  Result<ModelScores> model_scores(const Call& call, const Rows& rows,
                                   const std::map<size_t, double>& by_row) const;
  Status score(const Call& call, const Rows& rows, const std::map<size_t, double>& scores);
  Status share_rewards(const Call& call);
  Status compute(const Call& call);
  Status share_algo_state(CallId call);
  // Everyone's metrics and times as one: those of the step from here on.
  Status merge_reports(double whole_s);
  Status check_ledger() const;
  std::map<std::string, double> finish_step();

  const Config config_;
  const Program program_;
  World* const world_;
  const RunData data_;
  std::unique_ptr<DataCheck> data_check_;  // where loading left rows; on the first rank
  std::string saved_data_sha256_;          // of the checkpoint; "" once compared
  RunPosition position_;
  SampleStore store_;
  CallRows rows_;
  FieldExchange exchange_;
  int32_t accounted_ = 0;     // exchanges of the step that the account has
  std::set<CallId> written_;  // calls whose results it has
  SampleLedger ledger_;       // of this rank's step
  std::unique_ptr<RankModels> models_;
  NeedsOfCalls needs_;
  CallWork work_;
  Generation generation_;
  Inference inference_;
  TrainedSoFar trained_;
  std::map<CallId, Training> trainings_;  // of the train calls of this rank
  Scoring scoring_;
  std::unique_ptr<Evaluator> evaluator_;  // null without eval.*
  RewardModels eval_models_;             // of rewards that evaluations alone ask, on the first rank
  Json frozen_;                          // fingerprints of weights that are not trained
  std::map<CallId, FoundScores> found_;  // by reward call of the step, until it is shared

  // Of the step.
  Metrics metrics_;
  std::map<std::string, double> seconds_;   // of its calls
  std::map<std::string, int64_t> repeats_;  // of its calls, for lack of memory
  RankReport report_;                       // of the last step: everyone's
  std::vector<std::map<std::string, double>> rank_seconds_;
  std::vector<double> rank_peaks_;
  double step_s_ = 0;
  double instruction_s_ = 0;  // of CPU, around what instructions do; mean
  bool dismissed_ = false;
  Status untold_;                  // what this rank alone has found to fail
  bool failed_alike_ = false;      // the open step, on all ranks
  mutable bool together_ = false;  // on the first rank: the others are within what it began
  StepProgress start_;             // before it
  int64_t updates_before_ = 0;
  size_t noted_ = 0;            // the instruction that this rank has come to
  int64_t updates_passed_ = 0;  // those whose bookkeeping is complete
  int64_t trained_before_ = 0;
  std::optional<StepProgress> open_;  // after its last update; none before the first
};

}  // namespace braid::inline session

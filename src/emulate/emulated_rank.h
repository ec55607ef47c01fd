// One rank of an emulated step. The interpreter that real runs have (interpret/interpreter.h) walks
// its list of instructions; the ops of its calls run as op.h says. What computes takes its price,
// one after the other, on the clock of this rank's device; messages, exchanges, loads and offloads
// begin where the list says and pass beside it; collectives and messages make the real c10d call on
// a stand-in, then wait until the modelled end. No simulated time enters: only prices do. Groups,
// and what moves of fields and weights, are the runtime's own (samples/call_groups.h,
// emulated_fields.h, weights/reallocate.h).
//
// What computes begins when the op before it and everything in its `after` have ended by the clock,
// so that waking up late is made good where there is slack. One thread, but for what the runtime's
// runs of reallocations pass on in theirs.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "emulate/emulated_fields.h"
#include "emulate/emulated_links.h"
#include "emulate/fabric.h"
#include "emulate/rank_trace.h"
#include "emulate/rank_work.h"
#include "emulate/real_calls.h"
#include "emulate/stand_in.h"
#include "interpret/interpreter.h"
#include "passes/stage_messages.h"
#include "sim/trace.h"

namespace braid::inline emulate {

class EmulatedRank : private Executor {
 public:
  struct Options {
    double jitter = 0;  // largest share by which what computes takes more or less
    uint64_t seed = 0;  // of the jitter
  };
  // REQUIRES: what is referred to outlives the object; all groups of the work are connected.
  EmulatedRank(const Program& program, const PlanningProblem& problem, const StepPrices& prices,
               World& world, Fabric& fabric, RankWork work, const Options& options);
  ~EmulatedRank() override;

  // Makes what the step needs. REQUIRED once, before run().
  Status prepare();
  // c10d calls that this rank makes in the step, and the groups of them, in an order that their
  // members have in common.
  const RealCalls& real_calls() const { return calls_; }
  const std::vector<Communicator*>& groups() const { return work_.connected; }

  // One step from the origin of the clock on, which all ranks have in common. After a failure what
  // is under way may go on until its deadlines. Once for each object.
  Status run(const EmulatedClock& clock);

  // Of the step. Events: as the simulator's, on the tracks of this device; a kCall event on the
  // track kCompute is the span of a call. Times in seconds of the model.
  const std::vector<TraceEvent>& events() const { return trace_.events(); }
  double device_end_s() const { return clock_.model_s(last_end_ns_); }  // by the clock of devices
  double real_end_s() const { return clock_.model_s(real_end_ns_); }    // when all had happened
  // Calls of c10d in rounds of generation: that it made, and those of a rank that executes each of
  // the rounds that are alike.
  int64_t round_calls() const { return round_calls_; }
  int64_t calls_of_each_round() const { return calls_of_each_round_; }
  // Where ranks that met meant different things: messages or collectives out of their order.
  const std::vector<std::string>& misplaced() const { return trace_.misplaced(); }

 private:
  // Transfers that are no messages, in their keys: collectives, an exchange's part of a rank, loads
  // and offloads.
  enum : int64_t { kTogether = 1, kExchanged, kHostMove };
  // What passes beside computation, and is waited for: when it has ended.
  using Finish = std::function<Result<int64_t>()>;
  class NoWeights;
  struct Reallocating;  // a reallocation that has begun
  class WeightCarrier;

  void note_call(const EmulatedCall& work);
  void note_reallocation(int32_t index);
  void note_message(bool sends, DeviceId peer, int32_t channel, double bytes);
  EmulatedLinks::Message weight_message(int32_t index, size_t number) const;
  // Where a generation is handed over: what this rank tells and hears, at the first nothing; and
  // samples that move to and from it.
  std::vector<EmulatedLinks::Message> told_messages(size_t hand_over) const;
  std::vector<EmulatedLinks::Message> moved_messages(size_t hand_over) const;
  // Caches that are copied ahead of the first, to and from this rank.
  std::vector<EmulatedLinks::Message> copied_messages() const;
  void send_copies();
  Status move_slices(int32_t index);
  Status gather_followed(CallId call);
  struct Gather {  // of slices of weights
    Communicator* group = nullptr;
    std::vector<DeviceId> sharers;
    SliceGather price;
  };
  Gather gather_of(int32_t copy) const;
  Gather gather_of_arrivals(int32_t entry) const;
  Status gather_slices(const Gather& gather, int32_t index, bool arrived);
  void note_gathers();
  void make_fields();
  void note_meeting(double seconds, int64_t calls);
  void note_exchange(int32_t entry, int64_t transfers);
  void note_hand_over(size_t hand_over);
  void note_ops(const EmulatedCall& work, const Expansion& ops, const std::vector<double>& seconds);

  Result<int64_t> end_of(int32_t instruction);
  Result<int64_t> latest(const std::vector<InstructionId>& after);
  Result<int64_t> move_ready(int32_t instruction);
  Status begin_move(int32_t instruction);
  Status begin_move_at(int32_t index, int64_t begun_ns);
  Status begin_state_move(int32_t index, int64_t ready_ns);
  Status begin_reallocation(int32_t index, int64_t ready_ns);
  Status begin_waiting_moves();
  int32_t index_of(const Instruction& instruction) const {
    return static_cast<int32_t>(&instruction - list().data());
  }

  // The list.
  Status execute(const Instruction& instruction) override;
  Status begin_ahead(const Instruction& instruction) override;
  Status wait_for(const Instruction& instruction) override;
  bool region_done(const Instruction& end) const override;
  Status reopen(const Instruction& instruction) override;
  void passed(size_t) override {}

  // Now, or when all that an instruction waits for has ended.
  Result<int64_t> come_to(int32_t index);
  Status begin_exchange(int32_t index);
  Result<int64_t> finish_exchange(int32_t index, EmulatedFields::Arrivals arrivals, uint64_t key);
  Status share(int32_t index);
  Status hand_over(int32_t index);
  Status tell_progress(size_t hand_over, int64_t* known_ns);
  Result<int64_t> meet_all(int64_t ready_ns, int64_t what, const std::string& name);
  EmulatedFields& fields_of(const Exchange& exchange);

  Status run_call(const CallPart& at);
  Status begin_region(const CallPart& at);
  EmulatedCall* open_work(const CallPart& at);
  Status run_ops(const Instruction& instruction);
  Status enter_call(const CallPart& at, int32_t first);
  Status leave_call(const CallPart& at);
  struct Passes;  // of one of two calls that are fused
  Status run_fused(const FusedCalls& fused);
  Status run_op(EmulatedCall* work, int32_t index);
  class StageLinks;
  void open_stages(EmulatedCall* work);
  Status run_collective(EmulatedCall* work, int32_t index, int64_t ready_ns);
  Result<Fabric::Span> pass_together(Communicator* group, OpKind kind, StandIn mine,
                                     const std::vector<int32_t>& ports);
  Status run_round(EmulatedCall* work);
  Status agree_on_round(EmulatedCall* work);
  Result<int64_t> meet_in_round(EmulatedCall* work, const EmulatedCall::Round& round, OpKind run);
  Result<int64_t> meet(Communicator* group, OpKind kind, StandIn mine, const std::string& name,
                       std::vector<StandIn>* all = nullptr);
  Result<int64_t> meet_inside(const EmulatedCall& work, const Expansion& ops, const Op& op,
                              int64_t ready_ns);
  // When an op of that length has ended: later where what it needs of the host's comes later.
  Result<int64_t> end_after_loads(const EmulatedCall& work, const Op& op, int64_t ready_ns,
                                  int64_t length_ns);
  void compute_until(int64_t end_ns);
  int64_t compute_length(double seconds);

  void record(const TraceEvent& event, int64_t begin_ns, int64_t end_ns) {
    trace_.note(event, {begin_ns, end_ns});
  }
  const Call& call(CallId id) const { return program_.graph.calls[id.value]; }
  const std::vector<Instruction>& list() const {
    return program_.ranks[work_.rank.value].instructions;
  }

  const Program& program_;
  const PlanningProblem& problem_;
  const StepPrices& prices_;
  World& world_;
  Fabric& fabric_;
  RankWork work_;
  const Options options_;
  EmulatedClock clock_;
  Communicator* everyone_ = nullptr;
  std::unique_ptr<EmulatedFields> fields_, fields_ahead_;  // null: no call works ahead
  RankTrace trace_;
  std::optional<EmulatedLinks> links_;
  std::map<int32_t, int64_t> ends_;      // of the list's instructions that have ended
  std::map<int32_t, Finish> under_way_;  // of those that nobody has waited for
  std::set<int32_t> begun_moves_;
  // Before all know what the first fetch has read: since when the rank is ready for moves.
  std::map<int32_t, int64_t> waiting_moves_;
  int32_t fetched_ = -1;                           // the instruction with which all know it
  std::map<const Communicator*, int64_t> passed_;  // collectives on links
  std::map<CallPart, StageMessages> stages_;       // of calls that have begun
  RealCalls calls_;
  int64_t priced_ = 0;     // that took jitter
  int64_t device_ns_ = 0;  // until when this device computes
  std::map<CallPart, int64_t> entered_ns_;
  int32_t instruction_ = 0;                       // that is executed
  std::set<std::pair<CallPart, int32_t>> begun_;  // calls, and their bodies that have had a forward
  size_t next_round_ = 0;                         // of the generation that is open
  int64_t rounds_begin_ns_ = 0;
  int64_t round_calls_ = 0, calls_of_each_round_ = 0;
  int64_t last_end_ns_ = 0, real_end_ns_ = 0;

  std::list<Pending> told_;                                // what others may hear later
  std::list<std::unique_ptr<Reallocating>> reallocating_;  // last: their threads use the others
};

}  // namespace braid::inline emulate

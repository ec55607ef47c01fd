// One rank of an emulated step. The interpreter that real runs have (interpret/interpreter.h) walks
// its list of instructions; the ops of its calls run as op.h says. What computes takes its price,
// one after the other, on the clock of this rank's device; messages, loads and offloads run beside
// it, each channel in a thread of its own; collectives and messages make the real c10d call on a
// stand-in, then wait until the modelled end. No simulated time enters: only prices do. Groups, and
// what moves of fields, are the runtime's own (samples/call_groups.h, emulated_fields.h).
//
// What computes begins when the op before it and everything in its `after` have ended by the clock,
// so that waking up late is made good where there is slack. One thread calls it; it starts others,
// which end in join().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "emulate/emulated_fields.h"
#include "emulate/fabric.h"
#include "emulate/lanes.h"
#include "emulate/rank_work.h"
#include "emulate/stand_in.h"
#include "interpret/interpreter.h"
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

  // Gives every message to its lane. REQUIRED once, before run().
  Status prepare();
  // c10d calls that this rank makes in the step.
  int64_t real_calls() const;
  // The groups of those calls, in an order that their members have in common.
  const std::vector<Communicator*>& groups() const { return work_.connected; }
  // Seconds of this machine that a real call takes.
  struct RealSeconds {
    std::map<const Communicator*, double> collective;  // by group
    double message = 0;
  };
  // Least seconds of this machine for a second of the model with which the real calls take at most
  // `allowed_s` of the model beyond what their ops are priced: those of the thread that computes,
  // and of the busiest lane.
  double least_stretch(const RealSeconds& real, double allowed_s) const;

  // One step from the origin of the clock on, which all ranks have in common. After a failure the
  // lanes may go on until their deadlines. Once for each object.
  Status run(const EmulatedClock& clock);
  void join() { lanes_.join(); }

  // Of the step. Events: as the simulator's, on the tracks of this device; a kCall event on the
  // track kCompute is the span of a call. Times in seconds of the model.
  std::vector<TraceEvent> events() const { return events_; }
  double device_end_s() const { return clock_.model_s(last_end_ns_); }  // by the clock of devices
  double real_end_s() const { return clock_.model_s(real_end_ns_); }    // when all had happened
  // Calls of c10d in rounds of generation: that it made, and those of a rank that executes each of
  // the rounds that are alike.
  int64_t round_calls() const { return round_calls_; }
  int64_t calls_of_each_round() const { return calls_of_each_round_; }
  // Where ranks that met meant different things: messages or collectives out of their order.
  const std::vector<std::string>& misplaced() const { return misplaced_; }

 private:
  enum LaneKind { kSends, kReceives, kHostMoves, kFields, kExchanges, kReallocations };
  // What ranks do all together, and begins of exchanges: in the order of the list.
  static constexpr Lanes::Key kFieldsInOrder{kFields, 0, 0};
  struct Side {  // this rank's part of a message
    bool sends = false;
    DeviceId peer;
    int32_t channel = 0;
    double bytes = 0;
    int64_t what = 0, order = 0;
    TraceEvent event;
    std::string name;
  };

  void add_reallocation(int32_t index);
  void add_message(int32_t index, size_t number);
  class WeightCarrier;
  Status run_reallocation(int32_t index);
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
  void add_fields();
  void note_meeting(double seconds, int64_t calls);
  void add_exchange(int32_t index, int64_t transfers);
  void add_moved_samples(int32_t index);
  void add_moved_sample(int32_t index, size_t number);
  Result<int64_t> hand_over_end() const;
  void add_state_move(int32_t index);
  void add_stage_messages(EmulatedCall* work);
  void note_calls(const EmulatedCall& work, const Expansion& ops,
                  const std::vector<double>& seconds);
  void add_lane_task(const Side& side, Lanes::Task task);
  Result<StandIn> receive(DeviceId from, int32_t channel, const std::string& name);
  Result<int64_t> transfer(const Side& side, int64_t ready_ns);

  Result<int64_t> end_of(int32_t instruction) const;
  Result<int64_t> latest(const std::vector<InstructionId>& after) const;
  Result<int64_t> messages_ready(int32_t instruction) const;
  Result<int64_t> move_ready(int32_t instruction) const;
  void begin_move(int32_t instruction);
  int32_t index_of(const Instruction& instruction) const {
    return static_cast<int32_t>(&instruction - list().data());
  }

  // The list. Messages of weights, loads and offloads go on in their lanes from where the
  // interpreter begins them.
  Status execute(const Instruction& instruction) override;
  Status begin_ahead(const Instruction& instruction) override;
  Status wait_for(const Instruction& instruction) override;
  bool region_done(const Instruction& end) const override;
  Status reopen(const Instruction& instruction) override;
  void passed(size_t) override {}

  Result<int64_t> come_to(int32_t index) const;
  Status begin_exchange(int32_t index);
  Status share(int32_t index);
  Status hand_over(int32_t index);
  Result<int64_t> meet_all(int64_t ready_ns, int64_t what, const std::string& name);
  EmulatedFields& fields_of(const Exchange& exchange);

  Status run_call(const CallPart& at);
  Status begin_region(const CallPart& at);
  EmulatedCall* open_work(const CallPart& at);
  Status run_ops(const Instruction& instruction);
  Status enter_call(const CallPart& at, int32_t first);
  void leave_call(const CallPart& at);
  struct Passes;  // of one of two calls that are fused
  Status run_fused(const FusedCalls& fused);
  Status run_op(EmulatedCall* work, int32_t index);
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

  void record(TraceEvent event, int64_t begin_ns, int64_t end_ns);
  void note_misplaced(const std::string& what);
  void fail(const Status& failure);
  const Call& call(CallId id) const { return program_.graph.calls[id.value]; }
  const std::vector<Instruction>& list() const {
    return program_.ranks[work_.rank.value].instructions;
  }
  int32_t stage_channel(CallId call, Channel channel) const;

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
  EndTimes ends_;                                          // of the list's instructions
  EndTimes came_;             // when the rank came to a share, an exchange, a hand-over
  EndTimes begun_exchanges_;  // since when it is ready for an exchange that has begun
  std::vector<EmulatedFields::Arrivals> arrivals_;  // likewise: what then comes
  EndTimes begun_moves_;      // likewise: when messages of weights, a load or an offload were begun
  std::set<int32_t> moving_;  // those that were
  // [reallocation]: of its messages, when they were begun and have ended.
  std::vector<std::unique_ptr<EndTimes>> message_begins_, message_ends_;
  EndTimes reallocated_;  // by instruction: when all of them have
  int32_t fetched_ = -1;  // the instruction with which all know what the first fetch has read
  EndTimes handed_over_;  // and at which all ranks know what was handed over
  EndTimes moved_;        // by message of a sample that moves: when it is here
  // Of messages of weights: by reallocation, hop and lane.
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> channels_;
  struct PricedCalls {  // of an op
    double seconds = 0;
    std::vector<const Communicator*> groups;  // one real call for each
  };
  std::vector<PricedCalls> calls_;
  std::map<Lanes::Key, std::vector<double>> lane_prices_;  // of messages
  int64_t priced_ = 0;                                     // that took jitter
  int64_t device_ns_ = 0;                                  // until when this device computes
  std::map<CallPart, int64_t> entered_ns_;
  int32_t instruction_ = 0;                       // that is executed
  std::set<std::pair<CallPart, int32_t>> begun_;  // calls, and their bodies that have had a forward
  size_t next_round_ = 0;                         // of the generation that is open
  int64_t rounds_begin_ns_ = 0;
  int64_t round_calls_ = 0, calls_of_each_round_ = 0;
  int64_t last_end_ns_ = 0, real_end_ns_ = 0;

  std::mutex results_;
  Status failure_;
  std::vector<TraceEvent> events_;
  std::vector<std::string> misplaced_;
  Lanes lanes_;  // last: its threads use the others
};

}  // namespace braid::inline emulate

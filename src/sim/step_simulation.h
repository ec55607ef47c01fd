// One step of a program as a task graph: gates where ranks enter and leave calls, what happens
// between them, messages, and what memory each of it takes. Built once, run once. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "program/fused.h"
#include "schedule/schedule.h"
#include "sim/simulate.h"
#include "sim/step_prices.h"
#include "sim/task_graph.h"

namespace braid::inline sim {

// Memory that is taken or given back while a task runs.
struct MemoryChange {
  TaskId task = -1;
  double share = 0;  // of the task's time: 0 at its start, 1 at its end
  MemoryOwner owner = MemoryOwner::kWeights;
  int32_t instruction = -1;
  double bytes = 0;
};

class StepSimulation {
 public:
  StepSimulation(const Program& program, const PlanningProblem& problem,
                 const Calibration& calibration, const SimOptions& options, SampleLengths lengths);

  // Errors: a device without a model's precision.
  Status prepare();
  Trace run();

 private:
  // An op as tasks that follow each other: several where it waits for layers on its way.
  struct PassTasks {
    TaskId first = -1, last = -1;
  };
  struct OpEvent {  // of a group of devices that do the same
    PassTasks tasks;
    EventKind kind = EventKind::kCall;
    CallId call;
    int dp_rank = 0, stage = 0;
    int32_t micro_batch = -1;
    OpKind run = OpKind::kCall;  // the instruction of the call that executes it
    SamplePart part = SamplePart::kAll;
  };
  struct MessageEvent {
    TaskId task = -1;
    EventKind kind = EventKind::kPipeline;
    CallId call;
    DeviceId from, to;
    double bytes = 0;
    int32_t instruction = -1;
    LinkKind link = LinkKind::kSame;
  };
  struct Block {                    // a call on one rank
    int32_t first = -1, last = -1;  // instructions
    TaskId begin = -1, end = -1;
  };
  struct ReallocatedOn {  // a reallocation on one of its ranks
    int32_t instruction = -1;
    // When the rank comes to it, its messages may go, all of them have come, and it has ended:
    // where slices are gathered that lies between them.
    TaskId come = -1, begin = -1, arrived = -1, end = -1;
    std::vector<std::pair<TaskId, double>> arrivals;  // messages to it, with their bytes
  };
  struct GatherStop {  // where a rank gathers slices of weights
    DeviceId rank;
    int32_t instruction = -1;
    TaskId before = -1, after = -1;
  };
  struct HandedOver {  // by rank: it has come to a hand-over, and knows what has finished
    std::vector<TaskId> come, known;
  };
  struct StagePoint {
    int dp_rank = 0, stage = 0;
  };

  // step_simulation.cc: gates and waits, trace.
  void add_blocks();
  TaskId first_fetch() const;
  void add_edges();
  bool fused_with_previous(CallId id) const;
  std::vector<int32_t> replica_ports(CallId call, int stage) const;
  const Instruction& instruction(DeviceId rank, int32_t index) const;
  // A call has a block for all or the first part of its samples, and one for each later part.
  size_t slot(CallId call, SamplePart part) const {
    const auto later = static_cast<size_t>(std::max(0, static_cast<int>(part) - 1));
    return call.value + later * program_.graph.calls.size();
  }
  Block& block(CallId call, DeviceId device, SamplePart part);
  const Block& block(CallId call, DeviceId device, SamplePart part) const;
  std::vector<DeviceId> stage_devices(CallId call, StagePoint at) const;
  // -1: the device's list has none of that kind in the call.
  int32_t instruction_of(CallId call, DeviceId device, OpKind kind, SamplePart part) const;
  int32_t find_instruction(CallId call, DeviceId device, OpKind kind, SamplePart part) const;
  Trace make_trace();
  void add_events(Trace* trace) const;
  void summarise_calls(Trace* trace) const;

  // add_moves.cc: what moves between calls.
  void add_reallocations();
  ReallocatedOn reallocated_on(bool slices);
  void add_messages(const Reallocation& reallocation, std::map<int32_t, ReallocatedOn>& ranks);
  void add_slices(int32_t entry, const std::map<int32_t, ReallocatedOn>& ranks);
  void add_gathers(const ParamLayout& layout, const std::vector<GatherStop>& stops,
                   const std::function<SliceGather(DeviceId)>& price);
  void add_exchanges();
  HandedOver add_telling(size_t hand_over);
  void add_hand_over(DeviceId rank, int32_t instruction);
  void add_exchange(DeviceId rank, int32_t instruction);
  void add_state_move(DeviceId rank, int32_t instruction);
  TaskId link_task(DeviceId from, DeviceId to, double bytes, MessageEvent event);
  // Of what a rank does on its own links, with whomever; else from one device to another, or
  // between a device and its host.
  static bool keeps_own_links_busy(const MessageEvent& event) {
    return event.from == event.to &&
           (event.kind == EventKind::kExchange || event.kind == EventKind::kReallocation);
  }

  // expand_calls.cc: what happens inside calls.
  void expand_call(CallId id);
  void expand_part(CallId id, SamplePart part);
  void expand_host(CallId id, SamplePart part);
  void expand_passes(CallId id, SamplePart part);
  void expand_generate(CallId id, SamplePart part);
  void enter(CallId id, StagePoint at, TaskId task, SamplePart part);
  void leave(CallId id, StagePoint at, TaskId task, SamplePart part);
  // The ops of a stage of one data-parallel rank: its first tensor-parallel rank stands for all,
  // which do the same at the same time.
  struct StageRun {
    StagePoint at;
    Expansion ops;
    std::vector<TaskId> tasks;     // by op
    size_t begin = 0, end = 0;     // of the mini-batch at hand
    TaskId last = -1;              // of what computes
    double window_s = 0;           // of its last backward
    std::vector<bool> begun = {};  // [body]: it has had a forward
    bool updated = false;
    // Of the call that this one is fused with: they share devices, and one computes at a time.
    std::vector<StageRun*> beside = {};
    size_t next = 0;  // of its ops, where passes have an order of several calls
    SamplePart part = SamplePart::kAll;
    std::vector<DeviceId> devices = {};
    // Of each device the instruction of the call that executes ops of a kind.
    OpKind kind = OpKind::kCall;
    std::vector<int32_t> instructions = {};
  };
  // What the micro-batches of a data-parallel rank take.
  struct Work {
    MicroBatch batch;
    PassPrices prices;
  };
  using Works = std::vector<Work>;
  // Ops of several ranks that are one task, by the group's place.
  using Joints = std::map<std::tuple<OpKind, GroupKind, int, int>, TaskId>;
  // A training or inference call on all of its stages.
  struct CallRuns {
    CallId id;
    Partition partition;
    std::vector<PartitionSample> samples;
    std::vector<StageRun> stages;  // [dp rank * pp + stage]
    std::vector<Works> works;      // [dp rank], of the mini-batch at hand
    SamplePart part = SamplePart::kAll;
  };
  CallRuns start_runs(CallId id, SamplePart part);
  // Whether an instruction executes such ops there: what no instruction names takes no time.
  bool executes(const StageRun& run, OpKind kind) const;
  void start_fused(const FusedCalls& fused, std::vector<CallRuns>* calls);
  bool take_minibatch(CallRuns* call, size_t step) const;
  void expand_fused(const FusedCalls& fused);
  void end_runs(const CallRuns& call);
  static OpEvent event_of(const StageRun& run, const Op& op, const PassTasks& tasks,
                          EventKind kind);
  void add_passes(StageRun* run, const Works& works);
  void add_pass(StageRun* run, size_t op, const Work& work);
  void add_fused_pass(const PipelineOp& pass, CallRuns* call, StageRun* run);
  void wait_for_devices(const StageRun& run, TaskId task);
  PassTasks add_pass_tasks(StageRun* run, const Op& op, double seconds);
  std::vector<std::pair<double, TaskId>> layer_waits(const StageRun& run, const OpBody& body) const;
  void wait_for_optimizer(const StageRun& run, TaskId update);
  std::vector<StageRun*> replica_of(CallRuns* call, int dp_rank) const;
  void add_stage_messages(std::vector<StageRun*> replica);
  void finish_minibatch(std::vector<StageRun>* runs, const std::set<OpKind>& instructions);
  TaskId add_joint(StageRun* run, const Op& op, double seconds, Joints* joints);
  // All rounds of a replica, and the pages that its cache holds over time.
  struct ReplicaRounds {
    std::vector<BatchRequest> work;
    int64_t budget_tokens = 0;
    int64_t rounds = 0;
    double seconds = 0, agreement_s = 0;                 // of all, and of that what agreements take
    std::vector<std::pair<double, int64_t>> curve = {};  // seconds so far, pages
    double copied_s = 0;                                 // until caches are copied ahead
  };
  ReplicaRounds run_rounds(CallId id, ReplicaRequests work) const;
  void expand_replica(CallId id, int dp_rank, const ReplicaRounds& run, SamplePart part);
  void add_copies(CallId id, const std::vector<TaskId>& sending);
  void add_copy(const CacheCopy& copy, DeviceId to, const std::vector<TaskId>& sending);
  void remember_cache(CallId id, StagePoint at, TaskId task, const ReplicaRounds& run,
                      SamplePart part);
  void remember_op(const OpEvent& op, const std::vector<DeviceId>& devices, double busy_s);

  // step_memory.cc: who holds what.
  bool has_several_passes(CallId id, SamplePart part) const;
  void add_call_memory(CallId id, SamplePart part);
  void add_begun_memory(CallId id, SamplePart part);
  void hold_gradients(CallId id, SamplePart part, DeviceId device, double bytes);
  void add_field_memory(CallId id);
  const std::vector<int32_t>& instructions_of(StageRun* run, OpKind kind) const;
  void remember_pass(StageRun* run, const Op& op, const PassTasks& tasks, const MicroBatch& batch);
  void add_list_memory(DeviceId rank);
  void hold(DeviceId device, const Block& block, MemoryOwner owner, double bytes);
  void change(DeviceId device, const MemoryChange& change) {
    if (change.bytes != 0) changes_[device.value].push_back(change);
  }
  void resolve_memory(Trace* trace) const;
  DeviceSummary device_memory(DeviceId device, std::optional<MemoryPoint>* overflow) const;

  const Program& program_;
  const PlanningProblem& problem_;
  const SimOptions& options_;
  StepPrices prices_;
  TaskGraph tasks_;
  std::vector<std::vector<TaskId>> ends_;                      // [rank][instruction]
  std::vector<std::map<int32_t, Block>> blocks_;               // [slot], by device
  std::vector<std::map<int32_t, ReallocatedOn>> reallocated_;  // [entry], by member
  // [exchange], by rank: it has come; of a share: all have come and know.
  std::vector<std::map<int32_t, TaskId>> gates_;
  std::vector<HandedOver> handed_;
  std::vector<OpEvent> ops_;
  std::vector<MessageEvent> message_events_;
  std::vector<double> busy_;             // by device
  std::vector<double> call_busy_;        // by call: device seconds
  std::vector<int64_t> rounds_;          // by call
  std::vector<int64_t> replica_rounds_;  // of the generation at hand, in its parts so far
  std::vector<std::vector<MemoryChange>> changes_;
  int64_t instructions_ = 0;
};

}  // namespace braid::inline sim

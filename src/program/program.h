// A program: for each rank the ordered list of instructions that a step consists of. A value, made
// by compile(), interpreted by the runtime (which executes it) and by the simulator (which prices
// it). Region bodies repeat until an exit condition that is evaluated at an agreement point.
//
// A rank computes in the order of its list. What moves (reallocation, exchange, load, offload) is
// issued in that order too, starts when the instructions in `after` have ended, and runs beside
// what computes meanwhile: reallocations and loads also beside calls before their own. Messages of
// one pair of ranks travel in order among those of one hop: weights do not wait for what a relay
// has yet to receive. In a share all ranks wait for each other. The lists are projections of one
// global sequence: no rank can wait for another in a circle even if it does everything one after
// another.
#pragma once

#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "dataflow/graph.h"
#include "plan/problem.h"
#include "program/model_shape.h"
#include "program/op_kind.h"
#include "program/reallocation.h"
#include "schedule/pipelines.h"
#include "schedule/schedule.h"

namespace braid::inline program {

// When a region ends.
enum class ExitCondition {
  kNone,
  kDrained,
  kMinibatchesDone,
  kFilled,
  kFewLeft,
  kEnoughGroups,  // have finished for the step, and what must not become older
};
const char* exit_condition_name(ExitCondition condition);

// Which samples of a step an instruction works on. Where a generation is handed over
// (program/hand_over.h): those that had finished by then, those that had when it was handed over
// again, and so on, or the others. Where an update begins early (program/early_update.h): those of
// its first mini-batches, of the next ones, and so on. Where both are, a scorer has the parts of
// hand-overs first, and then of all others those of the update's. The numbers behind kLate are
// further parts.
enum class SamplePart : int8_t { kAll, kEarly, kLate };
std::string part_name(SamplePart part);

struct Instruction {
  OpKind kind = OpKind::kCall;
  CallId call;                                // the call of the graph that this is part of, or
                                              // (share, exchange) beside which it stands
  ExitCondition exit = ExitCondition::kNone;  // of a region, at its begin and end
  std::vector<InstructionId> after;           // earlier instructions that must have ended
  // What it is about. Reallocate: index into reallocations; share, exchange: into exchanges;
  // reduce, agree, tally, all_gather: into groups, of the ranks that are in it together (-1: this
  // one alone, or by messages); load, offload: into states; release, and call and round with
  // another copy than the home's: into copies; passes of two calls that are fused: into fused;
  // repeat: the instruction of this list to go back to. Else -1.
  int32_t detail = -1;
  // Load of weights: of these layers, with the ends of the model that lie beside them. Empty: all.
  Interval layers = {};
  // First instruction of a call: loads that its first pass waits for where it comes to their
  // layers, and its first update where they bring the optimizer.
  std::vector<InstructionId> within = {};
  // Of calls that occur once for each part (parts_of_call()).
  SamplePart part = SamplePart::kAll;
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct RankProgram {
  std::vector<Instruction> instructions;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

// Weights of a role in one layout. The home copy is what training updates, or what was loaded.
struct WeightCopy {
  RoleId role;
  ParamLayout layout;
  bool home = false;
  friend bool operator==(const WeightCopy&, const WeightCopy&) = default;
};

// How a copy is filled from the home copy of its role. What a rank has under both layouts it copies
// itself. A message begins when both of its ranks have come to the instruction, and, where a relay
// passes on what it got, when that has arrived (program/reallocation.h).
struct Reallocation {
  int32_t copy = -1;
  std::vector<DeviceId> members;  // ascending: who has the copy, and who sends or gathers for it
  std::vector<Message> messages;  // in an order that every member follows
  friend bool operator==(const Reallocation&, const Reallocation&) = default;
};

// Ranks that are in an instruction together, in the order of the call's groups (program/op.h).
struct RankGroup {
  std::vector<DeviceId> members;
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

// Fields of a call's samples that come to the ranks of another, or to all. Which rows move between
// which ranks depends on the samples: program/exchange.h says it.
struct Exchange {
  CallId producer;
  CallId consumer = {-1};  // -1: a share
  std::vector<std::string> fields;
  std::vector<DeviceId> members;  // ascending
  // What has finished at a hand-over goes to a scorer before; of scores that go to an early update:
  // a part.
  SamplePart part = SamplePart::kAll;
  bool shared() const { return consumer.value < 0; }
  // The call that works on the samples whose fields these are.
  CallId samples_of() const { return shared() ? producer : consumer; }
  friend bool operator==(const Exchange&, const Exchange&) = default;
};

// What moves between a device and its host.
struct RoleState {
  RoleId role;
  bool optimizer = false;  // false: the weights of the home copy
  friend bool operator==(const RoleState&, const RoleState&) = default;
};

// Where a call runs, and with which copy of its role's weights.
struct CallPlacement {
  DeviceMesh mesh;  // calls without a model: the ranks that run it
  Strategy strategy;
  int32_t copy = -1;    // -1: no model
  int64_t samples = 0;  // sequences of one step
  friend bool operator==(const CallPlacement&, const CallPlacement&) = default;
};

// A pass in the order of two fused calls: of which of them, and of which part.
struct FusedPass {
  int call = 0;
  ScheduleOp op;
  friend bool operator==(const FusedPass&, const FusedPass&) = default;
};

// Two training calls whose passes are fused into one schedule (program/fused.h). They have one
// region in every list, with a begin and an end of each: it repeats until both are done.
struct FusedCalls {
  std::array<CallId, 2> calls;
  PipelineProblem problem;                        // of each fused group
  FusedOrder order;                               // of its nodes
  std::vector<int32_t> nodes;                     // by rank; -1: not of the calls
  std::array<std::vector<int32_t>, 2> pipelines;  // by call and data-parallel rank
  friend bool operator==(const FusedCalls&, const FusedCalls&) = default;
};

// An update whose first mini-batch begins with samples that have finished when a generation is
// handed over, and the calls that say what these are worth (program/streamed_update.h).
struct StreamedUpdate {
  CallId update = {-1}, reward = {-1}, advantages = {-1};
  bool is_on() const { return update.value >= 0; }
  bool has(CallId call) const {
    return is_on() && (call == update || call == reward || call == advantages);
  }
  friend bool operator==(const StreamedUpdate&, const StreamedUpdate&) = default;
};

// A generation that is handed over when few samples are left, and the calls that begin with what
// has finished (program/hand_over.h).
struct FusedScoring {
  CallId generate = {-1};
  std::vector<CallId> scorers;  // ascending
  int64_t below = 0;            // handed over when at most so many samples are left; 0: none is
  int64_t most = 0;   // samples of a replica that goes on; 0: as many as each had at the begin
  bool cache = true;  // keys and values of a sample move with it
  std::vector<int64_t> again = {};  // likewise: at which it is handed over again, descending
  bool prefixes = false;  // beginnings of what is left then are scored (program/scored_prefixes.h)
  // Caches are copied ahead of the first one when at most so many are left (program/pre_copy.h); 0:
  // none are.
  int64_t pre_copy = 0;
  StreamedUpdate streamed = {};
  bool is_on() const { return below > 0; }
  int64_t hand_overs() const { return is_on() ? 1 + std::ssize(again) : 0; }
  friend bool operator==(const FusedScoring&, const FusedScoring&) = default;
};

// An update that begins when its first mini-batches are scored, and the calls that score the others
// beside it (program/early_update.h).
struct EarlyUpdate {
  CallId update = {-1};
  std::vector<CallId> scorers;  // ascending
  int64_t minibatches = 0;      // of a part, the last one has all others; 0: it waits for all
  int64_t parts = 0;            // of its samples
  bool is_on() const { return minibatches > 0; }
  friend bool operator==(const EarlyUpdate&, const EarlyUpdate&) = default;
};

struct Program {
  Graph graph;
  std::vector<RankProgram> ranks;
  // Empty in a program that compile(graph) made: one rank does everything.
  std::vector<CallPlacement> calls = {};  // by call
  std::vector<ModelShape> models = {};    // of the roles that calls use
  std::vector<WeightCopy> copies = {};
  std::vector<Reallocation> reallocations = {};  // in the order of the lists
  std::vector<Exchange> exchanges = {};          // in the order of the lists
  std::vector<RankGroup> groups = {};
  std::vector<RoleState> states = {};
  std::vector<FusedCalls> fused = {};
  FusedScoring scoring = {};
  EarlyUpdate early_update = {};
  // Which replica generates which sample depends on predicted lengths (program/partition.h).
  bool predicts_lengths = false;
  // The copy of the weights that the next step generates with is filled behind its update
  // (program/weight_sync.h); -1: when that step begins.
  int32_t synced_copy = -1;
  bool rewards_together = false;  // one rank asks the list of rewards about all samples
  int64_t staleness = 0;  // steps that rollouts may be older than the weights that learn from them
  friend bool operator==(const Program&, const Program&) = default;
};

// Which calls of a step's list have samples to work on when it is run. A step has both kinds, but
// before the first one generation alone fills what is ahead, and the last ones need no more.
struct Turn {
  bool now = true;    // those of the step's own samples
  bool ahead = true;  // those that work ahead
};
inline bool has_samples(const Turn& turn, const Call& call) {
  return call.steps_ahead > 0 ? turn.ahead : turn.now;
}

// Where a call is among Program::fused.
struct PlaceInPair {
  int32_t entry = -1;   // -1: it is fused with none
  int32_t of_pair = 0;  // 1: its passes run with those of the call before it
  bool second() const { return entry >= 0 && of_pair == 1; }
};
PlaceInPair place_in_pair(const Program& program, CallId call);

// The parts of the samples for which the list has the call, in order: kAll where it has it once.
std::vector<SamplePart> parts_of_call(const Program& program, CallId call);
inline bool runs_in_parts(const Program& program, CallId call) {
  return parts_of_call(program, call).size() > 1;
}
// How many of the parts of a call are of hand-overs: its first ones.
int64_t hand_overs_of(const Program& program, CallId call);
// Whether a part of a call is of one hand-over: a generation ends it there, a scorer has what had
// finished by then. The number of the part is that of the hand-over.
bool of_hand_over(const Program& program, CallId call, SamplePart part);
// The hand-over of such a part, from 0 on.
inline size_t hand_over_of(SamplePart part) { return static_cast<size_t>(part) - 1; }
// Whether the replicas of a call begin a part of its samples without each other.
inline bool begins_apart(const Program& program, CallId call, SamplePart part) {
  return part == SamplePart::kEarly || of_hand_over(program, call, part);
}

// Compiles one step of the graph for a single device that holds everything, in the graph's order.
Result<Program> compile(const Graph& graph);

// Compiles one step of the problem's graph under a plan. A plan for one device without offloading
// gives the instructions of compile(graph). `steps`, of an unrolled graph, is the step of every
// call: state in host memory comes and goes in each. Errors: those of validate().
Result<Program> compile(const ExecutionPlan& plan, const PlanningProblem& problem,
                        const std::vector<int32_t>& steps = {});

// The same with the list of one rank, which is what that rank does; the others' lists are empty. It
// is verified as verify_list() says: that ranks never wait in a circle is shown where the plan is
// made, with all lists. Errors: those of compile(), a rank that the plan does not have.
Result<Program> compile_rank(const ExecutionPlan& plan, const PlanningProblem& problem,
                             DeviceId rank);

// Of one list: nothing is read that was made longer ago than the program's staleness; regions are
// closed and not nested (two calls that are fused share one; a repeat has whole ones in what it
// repeats, and nothing that moves weights or trains), each with all that its call consists of;
// `after` points backwards, every call occurs once, state that rests on the host is loaded before
// each use and every use waits for it, reallocations bring all of a copy and stand between the last
// change of its weights and its uses, what a call reads has come from all who have it, by exchanges
// and shares that it waits for, and everything waits for what it needs. The error names the rank or
// table, its instruction or entry, and the rule.
Status verify_list(const Program& program, DeviceId rank);

// The same of all lists; and ranks that do everything in order never wait for each other in a
// circle.
Status verify(const Program& program);

// The same program with its calls (a region counts as one) in another order; an order that breaks a
// dependency is an error. `order` lists call indices.
// REQUIRES: one rank.
Result<Program> reorder(const Program& program, const std::vector<CallId>& order);

// The line of an instruction in a list of executed ones: its index, what it is and its call.
// REQUIRES: the rank has it.
std::string executed_instruction(const Program& program, size_t rank, size_t index);

// One line per instruction, for people; equal programs print equal text.
std::string program_text(const Program& program);

// 64-bit hash of everything static, as 16 hexadecimal digits: the lists and what they refer to,
// every call's mesh and strategy, the models, the fused order and the rules of partitioning and
// expansion.
std::string program_hash(const Program& program);

// Number of the rules of compile(): another one means other lists from an equal plan.
inline constexpr int kCompileRules = 4;

// Likewise of what compile_rank() makes for all ranks alike, of the plan as text, and of the
// numbers of the rules: ranks that have the same have lists of one program, which whoever made the
// plan has verified.
std::string plan_hash(const Program& program, const std::string& plan);

}  // namespace braid::inline program

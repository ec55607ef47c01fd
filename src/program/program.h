// A program: for each rank the ordered list of instructions that a step consists of. A value, made
// by compile(), interpreted by the runtime (which executes it) and by the simulator (which prices
// it). Region bodies repeat until an exit condition that is evaluated at an agreement point
// (blueprint §3).
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "dataflow/graph.h"

namespace braid {

enum class OpCode {
  kCall,           // run a call once
  kRegionBegin,    // open a stream region of a call
  kRegionEnd,      // back to the region's begin until its exit condition holds
  kGenerateStep,   // region body: one scheduling round and forward of the generation engine
  kSchedule,       // region body: the forwards and backwards of one optimizer step's micro-batches
  kAgree,          // region body: gather what the exit and branch conditions depend on
  kOptimizerStep,  // region body: apply the accumulated gradients unless the agreement refused them
};
const char* op_code_name(OpCode code);

// When a region ends.
enum class ExitCondition { kNone, kDrained, kMinibatchesDone };
const char* exit_condition_name(ExitCondition condition);

struct Instruction {
  OpCode code = OpCode::kCall;
  CallId call;                                // the call of the graph that this is part of
  ExitCondition exit = ExitCondition::kNone;  // of a region, at its begin and end
  std::vector<InstructionId> after;           // earlier instructions that must have ended
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct RankProgram {
  std::vector<Instruction> instructions;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

struct Program {
  Graph graph;
  std::vector<RankProgram> ranks;
  friend bool operator==(const Program&, const Program&) = default;
};

// Compiles one step of the graph for a single device that holds everything, in the graph's order.
Result<Program> compile(const Graph& graph);

// Regions are closed and not nested, `after` points backwards, every call occurs once, dependencies
// of the graph hold.
Status verify(const Program& program);

// The same program with its calls (a region counts as one) in another order; an order that breaks a
// dependency is an error. `order` lists call indices.
Result<Program> reorder(const Program& program, const std::vector<CallId>& order);

// One line per instruction, for people; equal programs print equal text.
std::string program_text(const Program& program);

// 64-bit hash of program_text, as 16 hexadecimal digits.
std::string program_hash(const Program& program);

}  // namespace braid

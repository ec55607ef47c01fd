// A step of a program on emulated devices: as many ranks as the program has, each a process that
// does what the lists say with waiting in place of computation (emulated_rank.h). It shows whether
// the step ends, in which order its ops run, what overlaps and what waits. Prices are the
// simulator's own: about how long an op takes on a real device it says nothing.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "emulate/rank_use.h"
#include "plan/problem.h"
#include "program/program.h"
#include "sim/simulate.h"

namespace braid::inline emulate {

// What is wrong with the lists on purpose (list_fault.h).
enum class ListFault { kNone, kDroppedWait, kSwappedMessages };

struct EmulationOptions {
  // Seconds of this machine for a second of the model; 0: as many as keep what the real
  // communication takes below kMostOverhead of the step.
  double time_scale = 0;
  double jitter = 0;        // largest share by which what computes takes more or less
  uint64_t seed = 0;        // of lengths and jitter
  double deadline_s = 300;  // of every wait, beyond the length of the step
  std::function<void(Expansion*)> change_ops = {};  // what-if, on this rank; not of fused calls
  ListFault fault = ListFault::kNone;               // in place of change_ops; not in the prediction
};

inline constexpr double kMostOverhead = 0.03;

struct Emulation {
  Trace predicted;         // by the simulator
  Trace emulated;          // step_s: from the common begin to the last end, by the machine's clock
  double time_scale = 1;   // that was used
  double overhead = 0;     // share of the step by which its real end is later than that of the
                           // devices' clocks: what the real communication took beyond its price
  int64_t real_calls = 0;  // of c10d, by the rank that makes most
  // Of each rank: calls, bytes and requests of the step, files, memory and processor time at its
  // end.
  std::vector<RankUse> use;
  std::vector<std::string> misplaced;  // where ranks that met meant different ops
  std::string fault;                   // of the lists; "" where they are right
};

// Whether so many devices can be emulated.
Status check_emulated_devices(const Program& program);

// A step that is right lies this near to its prediction, op by op, as a share of the step.
inline constexpr double kNear = 0.1;

// All ranks of the world together, which are processes of one machine and as many as the program
// has. On rank 0 the whole result, on the others only what is theirs. Errors: communication that
// fails or does not end in time; lists that have no place for the fault. The job has been told then
// (World::fail).
Result<Emulation> emulate_step(World& world, const Program& program, const PlanningProblem& problem,
                               const Calibration& calibration, const EmulationOptions& options);

// How two traces of a program differ, op by op: events of a device, kind and call are paired in
// their order.
struct TraceDifference {
  int64_t ops = 0;       // that were paired
  int64_t unpaired = 0;  // that only one of the traces has
  double largest = 0;    // of the differences of their ends, as a share of the first step
  double mean = 0;       // likewise
  double within = 0;     // share of the ops whose ends differ by at most a tenth of the step
};
TraceDifference compare_ops(const Trace& predicted, const Trace& emulated);

// Share of the time of all devices in which they wait, and of communication that runs beside
// computation on one of its devices.
struct TraceShape {
  double waiting = 0, overlapped = 0;
};
TraceShape shape_of(const Trace& trace);

// Predicted beside emulated seconds, a line for each call, then the step.
std::string emulation_text(const Emulation& emulation);

}  // namespace braid::inline emulate

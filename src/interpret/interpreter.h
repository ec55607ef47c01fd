// Executes one rank's instruction list, of real devices and of emulated ones; nothing else runs the
// calls of a step. (Evaluations lie between steps.) What an instruction means for models, samples
// and clocks is the Executor's part; order, regions and exit conditions are kept here. One thread.
#pragma once

#include <functional>

#include "program/program.h"

namespace braid::inline interpret {

class Executor {
 public:
  virtual ~Executor() = default;
  // Executes an instruction of this rank's list at its place. An exchange and a load begin there
  // and go on beside what follows; a reallocation sends what it has to send there. A region's end
  // comes once its exit condition holds.
  virtual Status execute(const Instruction& instruction) = 0;
  // Begins a load or a reallocation that stands further on, beside the calls before it; its own
  // place comes as well. Said of the same one again and again: nothing where it has begun.
  virtual Status begin_ahead(const Instruction& instruction) = 0;
  // An exchange or a reallocation has ended when this returns; what waits for it comes next. (Who
  // reads state from the host waits for its loads itself.)
  virtual Status wait_for(const Instruction& instruction) = 0;
  // Whether the exit condition holds of a call whose region ends here, or whose repeat stands here;
  // a pure function of what its agreement gathered, alike on all ranks.
  virtual bool region_done(const Instruction& end) const = 0;
  // Opens a call again whose region was left within its body; `begin`: of the call.
  virtual Status reopen(const Instruction& begin) = 0;
  // All before instruction `next` of the list is done: a call, a region, or an update in one with
  // the way of its weights to who holds them. In the region of two calls that is what each has
  // updated, and `next` the begin of its body.
  virtual void passed(size_t next) = 0;
};

// Memory ran out; `detail`: what the library said, or "".
Status out_of_memory(const std::string& detail);

// Runs a function; an exception of libtorch or std becomes a Status.
Status guarded(const std::function<Status()>& run);

// Called after each call (a region counts as one) with the seconds that its own instructions took.
using CallSeconds = std::function<void(const Call& call, double seconds)>;

// Called with the index of each instruction before it is executed.
using InstructionObserver = std::function<void(size_t index)>;

// Runs the list of a rank once and in its order, from instruction `begin` on, which passed() named
// before. Loads and reallocations begin with the first call before which all that they wait for has
// ended.
// An exception of libtorch or std becomes a Status that names the instruction.
Status run_list(const Program& program, size_t rank, Executor& executor, const CallSeconds& timer,
                const InstructionObserver& observer = {}, size_t begin = 0);

}  // namespace braid::inline interpret

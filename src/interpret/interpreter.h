// Executes one rank's instruction list, of real devices and of emulated ones. Nothing else runs
// calls. What an instruction means for models, samples and clocks is the Executor's part; the
// interpreter keeps order, regions and exit conditions. One thread.
#pragma once

#include <functional>

#include "program/program.h"

namespace braid::inline interpret {

class Executor {
 public:
  virtual ~Executor() = default;
  // Entries of the program's tables. A share ends when all ranks have come to it. An exchange
  // begins, and has ended after arrive(), which precedes what waits for it; so does a reallocation,
  // up to reallocated(). `here`: at its own place in the list, where what it has yet to send must
  // go; else earlier, beside calls before its own, and again.
  virtual Status share(int32_t entry) = 0;
  virtual Status begin_exchange(int32_t entry) = 0;
  virtual Status arrive(int32_t entry) = 0;
  virtual Status begin_reallocation(int32_t entry, bool here) = 0;
  virtual Status reallocated(int32_t entry) = 0;
  virtual Status run_call(const Call& call) = 0;
  virtual Status begin_region(const Call& call) = 0;
  virtual Status generate_step(const Call& call) = 0;
  virtual Status run_schedule(const Call& call) = 0;
  virtual Status reduce(const Call& call) = 0;
  virtual Status agree(const Call& call) = 0;
  virtual Status optimizer_step(const Call& call) = 0;
  // Whether the region's exit condition holds; a pure function of what agree() gathered.
  virtual bool region_done(ExitCondition exit) const = 0;
  virtual Status end_region(const Call& call) = 0;
  // Frees a copy of weights (an index into the program's).
  virtual void release(int32_t copy) = 0;
  // Begins to bring state from the host (an index into the program's): these layers of weights or,
  // where there are none, all of it; what reads it waits for it. Nothing where that has begun.
  virtual Status begin_load(int32_t state, const Interval& layers) = 0;
  // Puts it there.
  virtual Status offload(int32_t state) = 0;
  // All before instruction `next` of the list is done: a call, a region, or a body of one.
  virtual void passed(size_t next) = 0;
  // Opens a region again whose body was left before instruction `next`.
  virtual Status reopen_region(const Call& call) = 0;
};

// The number of a call that the interpreter hands to the executor of this program.
CallId call_id(const Program& program, const Call& call);

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

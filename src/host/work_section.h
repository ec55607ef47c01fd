// Where the CPU time of a rank's thread goes: into what instructions do (computing, copying,
// communicating), or into executing the list around that. Each thread counts for itself. What is
// marked and counted here is progress too (host/progress.h).
#pragma once

#include <cstdint>

namespace braid::inline host {

// CPU seconds of the calling thread since it began.
double thread_cpu_s();

// Marks what an instruction does, for as long as it lives; one within another counts once.
class WorkSection {
 public:
  WorkSection();
  ~WorkSection();
  WorkSection(const WorkSection&) = delete;
  WorkSection& operator=(const WorkSection&) = delete;

 private:
  double begin_s_ = 0;
};

// Counts an instruction or an op of this thread.
void count_instruction();

// What this thread has counted so far.
struct WorkCount {
  double work_s = 0;  // of CPU, in sections
  int64_t instructions = 0;
};
WorkCount work_count();

}  // namespace braid::inline host

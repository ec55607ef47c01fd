#include "host/work_section.h"

#include <time.h>

#include "host/progress.h"

namespace braid::inline host {
namespace {

thread_local WorkCount counted;
thread_local int depth = 0;

}  // namespace

double thread_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

WorkSection::WorkSection() {
  note_progress();
  if (depth++ == 0) begin_s_ = thread_cpu_s();
}

WorkSection::~WorkSection() {
  note_progress();
  if (--depth == 0) counted.work_s += thread_cpu_s() - begin_s_;
}

void count_instruction() {
  note_progress();
  ++counted.instructions;
}

WorkCount work_count() { return counted; }

}  // namespace braid::inline host

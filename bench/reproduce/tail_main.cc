// Prints generation and scoring one after the other and handed over, for batches with a tail of
// long responses. usage: reproduce_tail
#include <cstdio>

#include "base/text.h"
#include "experiment.h"
#include "tail.h"

namespace braid::reproduce {
namespace {

void print_trace(const char* what, const TailTrace& trace) {
  const auto times = run_tail(trace);
  if (!times.ok()) {
    std::printf("%s: %s\n", what, times.status().message().c_str());
    return;
  }
  const double serial_s = times->generate_s + times->score_s;
  print_row({what, cat(trace.score_tp), number(times->generate_s, 2), number(times->score_s, 2),
             number(times->fused_s, 2), cat(times->chosen.migrate_below_samples),
             number(serial_s / times->fused_s, 3), number(times->longest_s, 2),
             number(times->work_s, 2), number(100 * (times->fused_s / times->bound_s() - 1), 1),
             number(times->begun_s, 2), cat(times->begun.migrate_below_samples),
             number(serial_s / times->begun_s, 3),
             number(100 * (times->begun_s / times->bound_s() - 1), 1)});
}

void print_traces() {
  print_header({"trace", "scoring tp", "generation s", "scoring s", "handed over s", "at samples",
                "gain", "longest s", "work s", "above the longer %", "beginnings scored s",
                "at samples", "gain", "above the longer %"});
  for (const int tp : {1, 2, 4}) print_trace("512 on 16, sigma 0.745", {.score_tp = tp});
  print_trace("longer: median 400 of 8000", {.median = 400, .longest = 8000, .score_tp = 4});
  print_trace("sigma 0.5", {.sigma = 0.5, .score_tp = 4});
  print_trace("sigma 1", {.sigma = 1, .longest = 4000, .score_tp = 4});
  print_trace("scoring a tenth", {.scoring = 0.1, .score_tp = 4});
}

}  // namespace
}  // namespace braid::reproduce

int main() { braid::reproduce::print_traces(); }

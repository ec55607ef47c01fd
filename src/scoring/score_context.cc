#include "scoring/score_context.h"

#include "host/stop_signal.h"

namespace braid::inline scoring {

ScoreContext score_context(const Config& config, int64_t step) {
  ScoreContext context;
  context.step = step;
  context.total_steps = config.train.total_steps;
  context.interrupted = [] { return seconds_since_stop_signal() >= kStopGrace_s; };
  return context;
}

}  // namespace braid::inline scoring

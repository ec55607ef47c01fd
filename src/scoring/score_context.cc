#include "scoring/score_context.h"

#include <algorithm>
#include <chrono>

#include "host/stop_signal.h"

namespace braid::inline scoring {

ScoreContext score_context(const Config& config, int64_t step) {
  ScoreContext context;
  context.step = step;
  context.total_steps = config.train.total_steps;
  const auto begin = std::chrono::steady_clock::now();
  context.interrupted = [begin] {
    const std::chrono::duration<double> here = std::chrono::steady_clock::now() - begin;
    return std::min(seconds_since_stop_signal(), here.count()) >= kStopGrace_s;
  };
  return context;
}

}  // namespace braid::inline scoring

// The console's line of a step.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/text.h"
#include "report/metrics_log.h"

namespace braid::inline report {
namespace {

struct Column {
  const char* name;
  const char* label;
};

// What the console shows of a row, in this order, as far as it has it.
constexpr Column kColumns[] = {{"reward/raw_mean", "reward"},
                               {"eval/reward_mean", "eval reward"},
                               {"eval/accuracy", "eval accuracy"},
                               {"kl/ref_k1", "kl"},
                               {"policy/loss", "loss"},
                               {"sft/loss", "loss"},
                               {"rm/loss", "loss"},
                               {"rm/accuracy", "accuracy"},
                               {"dpo/loss", "loss"},
                               {"dpo/accuracy", "accuracy"},
                               {"orpo/loss", "loss"},
                               {"orpo/accuracy", "accuracy"},
                               {"kto/loss", "loss"},
                               {"kto/accuracy", "accuracy"},
                               {"distill/reverse_kl", "reverse kl"},
                               {"critic/loss", "value loss"},
                               {"length/response_mean", "length"}};

constexpr int kBarCells = 16;
constexpr size_t kPhasesShown = 3;
constexpr double kShortestPhase_s = 0.005;

std::string printed(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string progress(int64_t step, int64_t total_steps) {
  const double share =
      static_cast<double>(step + 1) / static_cast<double>(std::max(total_steps, int64_t{1}));
  const int full = std::min(kBarCells, static_cast<int>(share * kBarCells));
  return cat("step ", step + 1, "/", total_steps, " [", std::string(full, '#'),
             std::string(kBarCells - full, '.'), "]", printed(" %.0f%%", 100 * share));
}

// "3.21 s (update_critic 1.90, generate 0.52, values 0.31)".
std::string phases(const MetricsRow& row) {
  const auto step = row.find("time/step");
  if (step == row.end()) return "";
  std::vector<std::pair<double, std::string>> times;
  for (const auto& [name, seconds] : row)
    if (name.rfind("time/", 0) == 0 && name != "time/step" && seconds >= kShortestPhase_s)
      times.emplace_back(seconds, name.substr(5));
  std::sort(times.rbegin(), times.rend());
  times.resize(std::min(times.size(), kPhasesShown));
  std::vector<std::string> parts;
  for (const auto& [seconds, name] : times) parts.push_back(name + printed(" %.2f", seconds));
  return printed("  %.2f s", step->second) +
         (parts.empty() ? "" : cat(" (", join(parts, ", "), ")"));
}

}  // namespace

std::string console_line(const MetricsRow& row, int64_t step, int64_t total_steps, double left_s) {
  std::string line = progress(step, total_steps);
  for (const Column& column : kColumns) {
    const auto found = row.find(column.name);
    if (found != row.end()) line += cat("  ", column.label, printed(" %.4g", found->second));
  }
  line += phases(row);
  const auto speed = row.find("perf/tokens_per_s_per_device");
  if (speed != row.end()) line += printed("  %.0f tokens/s", speed->second);
  if (left_s < 0) return line;
  const auto minutes = static_cast<int64_t>(left_s / 60);
  return line + (minutes > 0 ? cat("  left ", minutes, " min") : printed("  left %.0f s", left_s));
}

}  // namespace braid::inline report

// Learning-rate schedules and the check of the optimizer's options.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "train/optimizer.h"

namespace braid::inline train {
namespace {

constexpr double kPi = 3.14159265358979323846;

// From 1 after the warm-up to 0 at the end.
double decay(const std::string& schedule, double progress) {
  if (schedule == "constant") return 1;
  if (schedule == "linear") return 1 - progress;
  BRAID_CHECK(schedule == "cosine", schedule);
  return 0.5 * (1 + std::cos(kPi * progress));
}

Status check(bool good, const std::string& key, const std::string& allowed) {
  return good ? Status() : invalid_input(cat(key, ": allowed: ", allowed));
}

}  // namespace

Status validate(const OptimizerConfig& config, const std::string& key) {
  const std::vector<std::string> schedules = {"constant", "linear", "cosine"};
  BRAID_TRY(check(std::count(schedules.begin(), schedules.end(), config.schedule) == 1,
                  cat(key, ".schedule = ", config.schedule), join(schedules, " | ")));
  BRAID_TRY(check(config.lr >= 0 && std::isfinite(config.lr), key + ".lr", "a number >= 0"));
  BRAID_TRY(check(config.betas.size() == 2 && config.betas[0] >= 0 && config.betas[0] < 1 &&
                      config.betas[1] >= 0 && config.betas[1] < 1,
                  key + ".betas", "two numbers >= 0 and < 1"));
  BRAID_TRY(check(config.eps > 0, key + ".eps", "a number > 0"));
  BRAID_TRY(check(config.weight_decay >= 0, key + ".weight_decay", "a number >= 0"));
  BRAID_TRY(check(config.warmup_steps >= 0, key + ".warmup_steps", "an integer >= 0"));
  BRAID_TRY(
      check(config.min_lr_ratio >= 0 && config.min_lr_ratio <= 1, key + ".min_lr_ratio", "0 to 1"));
  return check(config.max_grad_norm >= 0, key + ".max_grad_norm", "a number >= 0 (0 = off)");
}

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t total_steps) {
  if (step < config.warmup_steps) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  const auto span = static_cast<double>(std::max<int64_t>(total_steps - config.warmup_steps, 1));
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup_steps) / span);
  const double floor = config.min_lr_ratio;
  return config.lr * (floor + (1 - floor) * decay(config.schedule, progress));
}

}  // namespace braid::inline train

#include "checkpoint/save_schedule.h"

namespace braid::inline checkpoint {
namespace {

constexpr double kSecondsPerMinute = 60;

}  // namespace

bool SaveSchedule::is_due(int64_t step, double now_s) const {
  const bool by_step = config_.every_steps > 0 && step % config_.every_steps == 0;
  const bool by_time = config_.every_minutes > 0 &&
                       now_s - last_save_s_ >= config_.every_minutes * kSecondsPerMinute;
  return by_step || by_time;
}

}  // namespace braid::inline checkpoint

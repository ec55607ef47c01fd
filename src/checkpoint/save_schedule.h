// When a run writes checkpoints: every so many steps, every so many minutes, or both. Times are
// seconds since some moment, as the caller's clock tells them. A value; one thread.
#pragma once

#include <cstdint>

#include "config/options.h"

namespace braid::inline checkpoint {

class SaveSchedule {
 public:
  // The minutes of checkpoint.every_minutes count from now_s on.
  SaveSchedule(const CheckpointConfig& config, double now_s)
      : config_(config), last_save_s_(now_s) {}

  // Whether a checkpoint is due at now_s, after `step` completed steps.
  bool is_due(int64_t step, double now_s) const;
  // A checkpoint was written at now_s: the minutes count from there on.
  void note_save(double now_s) { last_save_s_ = now_s; }

 private:
  CheckpointConfig config_;
  double last_save_s_;
};

}  // namespace braid::inline checkpoint

// Time of emulated devices: nanoseconds of the machine's monotonic clock, which all its processes
// share, since the begin of the step. A second of the model takes `stretch` of them. Plain value;
// thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <ctime>

namespace braid::inline emulate {

class EmulatedClock {
 public:
  EmulatedClock() = default;
  EmulatedClock(int64_t origin_ns, double stretch) : origin_ns_(origin_ns), stretch_(stretch) {}

  static int64_t machine_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
  }
  int64_t now_ns() const { return machine_ns() - origin_ns_; }
  int64_t origin_ns() const { return origin_ns_; }
  double stretch() const { return stretch_; }

  // Waiting time of seconds of the model, and back.
  int64_t length_ns(double model_s) const { return std::llround(model_s * stretch_ * 1e9); }
  double model_s(int64_t ns) const { return static_cast<double>(ns) * 1e-9 / stretch_; }

  // Returns at once where that time is over.
  void sleep_until(int64_t ns) const {
    const int64_t at = ns + origin_ns_;
    const timespec until{static_cast<time_t>(at / 1000000000), static_cast<long>(at % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
  }

 private:
  int64_t origin_ns_ = 0;
  double stretch_ = 1;
};

}  // namespace braid::inline emulate

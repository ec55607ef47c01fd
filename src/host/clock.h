// Seconds of a clock that only goes forward, for what took how long.
#pragma once

#include <chrono>

namespace braid::inline host {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace braid::inline host

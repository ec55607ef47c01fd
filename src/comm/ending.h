// What a process lets go of before it ends while its threads are inside calls of other libraries,
// which cannot be called back: communicators of GPUs. Thread-safe.
#pragma once

#include <functional>

namespace braid::inline comm {

// `call` is made when the process ends before its time. It may come from any thread, and hang.
void at_ending(std::function<void()> call);

// For run_endings().
inline constexpr double kEndingLimit_s = 3;

// Makes all such calls, each in a thread of its own. Returns when they have returned, after
// `limit_s` at the latest, and whether they have.
bool run_endings(double limit_s);

}  // namespace braid::inline comm

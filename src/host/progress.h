// How far the work of this process has come: a number that grows with each piece of work that is
// done, however small. A rank whose number stands still while it waits for nobody is stuck; its
// watchdog tells the others the number (comm/watchdog.h). Thread-safe; a call takes a nanosecond.
#pragma once

#include <cstdint>

namespace braid::inline host {

// A piece of work is done. Threads beside the work (work_beside()) count nothing: they go on where
// the work is stuck. One that the rank waits for at times counts then alone (host/awaited_work.h).
void note_progress();
uint64_t progress_count();

// What this thread does from here on is no work that anybody waits for.
void work_beside();

}  // namespace braid::inline host

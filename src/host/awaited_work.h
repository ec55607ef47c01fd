// Work beside that of a process (host/progress.h) that it may come to wait for. Thread-safe.
#pragma once

#include <atomic>

namespace braid::inline host {

// What this thread does from here on is progress only while `awaited` says that somebody waits for
// it. REQUIRES: `awaited` outlives the thread.
void work_when_awaited(const std::atomic<bool>& awaited);

}  // namespace braid::inline host

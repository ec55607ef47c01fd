#include "host/progress.h"

#include <atomic>

namespace braid::inline host {
namespace {

std::atomic<uint64_t> pieces{0};
thread_local bool is_beside = false;

}  // namespace

void note_progress() {
  if (!is_beside) pieces.fetch_add(1, std::memory_order_relaxed);
}

uint64_t progress_count() { return pieces.load(std::memory_order_relaxed); }

void work_beside() { is_beside = true; }

}  // namespace braid::inline host

#include "host/progress.h"

#include <atomic>

#include "host/awaited_work.h"

namespace braid::inline host {
namespace {

std::atomic<uint64_t> pieces{0};
thread_local bool is_beside = false;
thread_local const std::atomic<bool>* awaits = nullptr;

}  // namespace

void note_progress() {
  if (!is_beside || (awaits != nullptr && *awaits)) pieces.fetch_add(1, std::memory_order_relaxed);
}

uint64_t progress_count() { return pieces.load(std::memory_order_relaxed); }

void work_beside() { is_beside = true; }

void work_when_awaited(const std::atomic<bool>& awaited) {
  is_beside = true;
  awaits = &awaited;
}

}  // namespace braid::inline host

#include "nn/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <atomic>

namespace braid {
namespace {

std::atomic<int64_t> held_bytes{0}, most_bytes{0};

void note_change(int64_t bytes) {
  const int64_t now = held_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = most_bytes.load(std::memory_order_relaxed);
  while (now > most && !most_bytes.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

// What the heap says of a block is the same when it comes and when it goes.
int64_t block_bytes(void* block) { return static_cast<int64_t>(malloc_usable_size(block)); }

void release(void* block) {
  if (block == nullptr) return;
  note_change(-block_bytes(block));
  c10::free_cpu(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const block = c10::alloc_cpu(bytes);
    if (block != nullptr) note_change(block_bytes(block));
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void count_tensor_memory() {
  static CountingAllocator allocator;
  static const bool once = [] {
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
    return true;
  }();
  (void)once;
}

int64_t tensor_bytes() { return held_bytes.load(std::memory_order_relaxed); }
int64_t peak_tensor_bytes() { return most_bytes.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { most_bytes.store(tensor_bytes(), std::memory_order_relaxed); }

}  // namespace braid

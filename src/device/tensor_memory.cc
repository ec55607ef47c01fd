#include "device/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>

#include "base/text.h"

namespace braid::inline device {
namespace {

std::atomic<int64_t> held_bytes{0}, host_most_bytes{0}, limit_bytes{0};
// Of the accelerator of this process: the most that meters saw which have ended since the outermost
// one that runs began. The allocator's own record begins anew with each meter.
std::atomic<int64_t> ended_meters_most{0};

void raise_to(std::atomic<int64_t>& most, int64_t bytes) {
  int64_t found = most.load(std::memory_order_relaxed);
  while (bytes > found && !most.compare_exchange_weak(found, bytes, std::memory_order_relaxed)) {
  }
}

void note_change(int64_t bytes) {
  raise_to(host_most_bytes, held_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes);
}

// What the heap says of a block is the same when it comes and when it goes.
int64_t block_bytes(void* block) { return static_cast<int64_t>(malloc_usable_size(block)); }

void release(void* block) {
  if (block == nullptr) return;
  note_change(-block_bytes(block));
  c10::free_cpu(block);
}

// Threads of a transport let tensors go a moment after they have said that they are done, on a busy
// machine a long one; until then these count, and what would fit does not.
constexpr std::chrono::milliseconds kLetGo(100);

void wait_for_room(int64_t most_held) {
  const auto end = std::chrono::steady_clock::now() + kLetGo;
  while (tensor_bytes() > most_held && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void check_room(size_t bytes) {
  const int64_t limit = limit_bytes.load(std::memory_order_relaxed);
  if (limit == 0) return;
  const int64_t most_held = limit - static_cast<int64_t>(bytes);
  wait_for_room(most_held);
  const int64_t held = tensor_bytes();
  TORCH_CHECK_WITH(OutOfMemoryError, held <= most_held, "out of memory: tensors hold ", held,
                   " of ", limit, " bytes, ", bytes, " more are asked for");
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    check_room(bytes);
    void* const block = c10::alloc_cpu(bytes);
    if (block != nullptr) note_change(block_bytes(block));
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// The allocator of an accelerator where it counts; else null.
c10::DeviceAllocator* counting_allocator(at::Device device) {
  if (device.is_cpu()) return nullptr;
  auto* const found = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return found != nullptr && found->initialized() ? found : nullptr;
}

c10::DeviceIndex index_of(at::Device device) { return device.has_index() ? device.index() : 0; }

c10::CachingAllocator::Stat allocated(c10::DeviceAllocator& allocator, at::Device device) {
  constexpr size_t kAll = 0;  // pools of every kind
  return allocator.getDeviceStats(index_of(device)).allocated_bytes[kAll];
}

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
int64_t peak_tensor_bytes() { return host_most_bytes.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { host_most_bytes.store(tensor_bytes(), std::memory_order_relaxed); }

void set_tensor_memory_limit(int64_t bytes) { limit_bytes.store(bytes, std::memory_order_relaxed); }
int64_t tensor_memory_limit() { return limit_bytes.load(std::memory_order_relaxed); }

int64_t held_tensor_bytes(at::Device device) {
  if (device.is_cpu()) return tensor_bytes();
  auto* const allocator = counting_allocator(device);
  return allocator == nullptr ? 0 : allocated(*allocator, device).current;
}

int64_t peak_tensor_bytes(at::Device device) {
  if (device.is_cpu()) return peak_tensor_bytes();
  auto* const allocator = counting_allocator(device);
  if (allocator == nullptr) return 0;
  return std::max(ended_meters_most.load(std::memory_order_relaxed),
                  allocated(*allocator, device).peak);
}

void reset_peak_tensor_bytes(at::Device device) {
  if (device.is_cpu()) return reset_peak_tensor_bytes();
  ended_meters_most.store(0, std::memory_order_relaxed);
  if (auto* const allocator = counting_allocator(device))
    allocator->resetPeakStats(index_of(device));
}

std::optional<int64_t> free_tensor_bytes(at::Device device) {
  if (device.is_cpu()) {
    const int64_t limit = tensor_memory_limit();
    return limit == 0 ? std::nullopt : std::optional(limit - tensor_bytes());
  }
  auto* const allocator = counting_allocator(device);
  if (allocator == nullptr) return std::nullopt;
  const c10::DeviceIndex index = index_of(device);
  const auto stats = allocator->getDeviceStats(index);
  // What the allocator keeps for later is free to tensors too.
  const int64_t kept = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  return static_cast<int64_t>(allocator->getMemoryInfo(index).first) + kept;
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  const std::string text = error.what();
  for (const char* sign : {"can't allocate memory", "out of memory", "not enough memory"})
    if (text.find(sign) != std::string::npos) return true;
  return false;
}

std::string what_ran_out(const std::exception& error) {
  const std::string text = first_line(error.what());
  return text.empty() ? "out of memory" : text;
}

PeakMeter::PeakMeter(at::Device device)
    : device_(device), begin_(held_tensor_bytes(device)), before_(peak_tensor_bytes(device)) {
  reset_peak_tensor_bytes(device_);
}

PeakMeter::~PeakMeter() {
  raise_to(device_.is_cpu() ? host_most_bytes : ended_meters_most, before_);
}

int64_t PeakMeter::most_bytes() const { return peak_tensor_bytes(device_) - begin_; }
int64_t PeakMeter::kept_bytes() const { return held_tensor_bytes(device_) - begin_; }

}  // namespace braid::inline device

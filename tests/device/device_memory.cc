#include "device_memory.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace braid {
namespace {

constexpr size_t kRange = size_t{8} << 30;  // of addresses: pages exist once they are written
constexpr size_t kAlignment = 64;

struct sigaction previous_handler;

// Says whose memory was touched, then lets the fault end the process as it would have.
void explain_fault(int, siginfo_t* info, void*) {
  if (DeviceMemory::instance().holds(info->si_addr)) {
    constexpr char kText[] =
        "host code touched memory of the test device through a pointer: a tensor is on the wrong "
        "side\n";
    const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    static_cast<void>(written);
  }
  sigaction(SIGSEGV, &previous_handler, nullptr);
}

uint8_t* map_range(int file, int protection) {
  void* range = mmap(nullptr, kRange, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(range != MAP_FAILED, "no addresses for the test device");
  return static_cast<uint8_t*>(range);
}

}  // namespace

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("test device", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, kRange) == 0, "no memory for the test device");
  front_ = map_range(file, PROT_NONE);
  back_ = map_range(file, PROT_READ | PROT_WRITE);
  close(file);
  struct sigaction action {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous_handler);
}

DeviceMemory& DeviceMemory::instance() {
  static auto* memory = new DeviceMemory();  // outlives every tensor
  return *memory;
}

void* DeviceMemory::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  size_t size = kAlignment;
  while (size < bytes) size *= 2;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<void*>& free = free_[size];
  if (free.empty()) {
    TORCH_CHECK(used_ + size <= kRange, "the test device is out of memory");
    free.push_back(front_ + used_);
    used_ += size;
  }
  void* piece = free.back();
  free.pop_back();
  size_of_[piece] = size;
  in_use_ += static_cast<int64_t>(size);
  return piece;
}

void DeviceMemory::release(void* piece) {
  if (piece == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = size_of_.find(piece);
  TORCH_CHECK(found != size_of_.end(), "a piece of the test device is released twice");
  in_use_ -= static_cast<int64_t>(found->second);
  free_[found->second].push_back(piece);
  size_of_.erase(found);
}

bool DeviceMemory::holds(const void* pointer) const {
  const auto* byte = static_cast<const uint8_t*>(pointer);
  return byte >= front_ && byte < front_ + kRange;
}

void* DeviceMemory::for_kernels(const void* pointer) const {
  if (pointer == nullptr) return nullptr;
  TORCH_CHECK(holds(pointer), "a pointer that is not of the test device");
  return back_ + (static_cast<const uint8_t*>(pointer) - front_);
}

int64_t DeviceMemory::bytes_in_use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return in_use_;
}

}  // namespace braid

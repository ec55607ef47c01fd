#include "comm/ending.h"

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace braid::inline comm {
namespace {

struct Endings {
  std::mutex mutex;
  std::vector<std::function<void()>> calls;
};

// Never destroyed: a call that hangs may outlive what main() leaves behind.
Endings& endings() {
  static auto* const all = new Endings;
  return *all;
}

}  // namespace

void at_ending(std::function<void()> call) {
  const std::lock_guard lock(endings().mutex);
  endings().calls.push_back(std::move(call));
}

bool run_endings(double limit_s) {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(endings().mutex);
    calls = endings().calls;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  std::vector<std::future<void>> returned;
  for (const auto& call : calls) {
    std::packaged_task<void()> task(call);
    returned.push_back(task.get_future());
    std::thread(std::move(task)).detach();
  }
  bool all = true;
  for (const auto& each : returned) all = each.wait_until(end) == std::future_status::ready && all;
  return all;
}

}  // namespace braid::inline comm

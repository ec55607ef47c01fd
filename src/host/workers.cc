#include "host/workers.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace braid::inline host {

Status for_each_on_workers(size_t items, size_t workers,
                           const std::function<Status(size_t worker, size_t item)>& job) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  size_t failed_item = items;
  Status failure;
  const auto run = [&](size_t worker) {
    for (size_t item = next++; item < items; item = next++) {
      Status status = job(worker, item);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (item < failed_item) failure = std::move(status);
      failed_item = std::min(item, failed_item);
      next = items;
    }
  };
  std::vector<std::thread> threads;
  for (size_t worker = 1; worker < std::min(workers, items); ++worker)
    threads.emplace_back(run, worker);
  run(0);
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace braid::inline host

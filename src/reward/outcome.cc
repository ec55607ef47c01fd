#include "reward/outcome.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

namespace braid {

RewardOutcome value_outcome(double value) {
  if (!std::isfinite(value)) return error_outcome("the reward is not a finite number");
  return {RewardOutcome::Kind::kValue, value, "", {}};
}

RewardOutcome timeout_outcome(std::string error) {
  return {RewardOutcome::Kind::kTimeout, 0, std::move(error), {}};
}

RewardOutcome error_outcome(std::string error) {
  return {RewardOutcome::Kind::kError, 0, std::move(error), {}};
}

Result<std::string> label_text(const RewardSample& sample) {
  const auto label = sample.extra.find("label");
  if (label == sample.extra.end() || label->is_null())
    return invalid_input("the sample has no 'label'");
  if (label->is_string()) return label->get<std::string>();
  if (label->is_number()) return label->dump();
  return invalid_input(
      cat("'label' is of type ", label->type_name(), "; text or a number is needed"));
}

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

}  // namespace braid

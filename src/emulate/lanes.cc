#include "emulate/lanes.h"

#include <exception>

namespace braid::inline emulate {
namespace {

Status run_task(const Lanes::Task& task) {
  try {
    return task();
  } catch (const std::exception& error) {  // of libtorch
    return {Code::kUnavailable, error.what()};
  }
}

}  // namespace

void Lanes::start() {
  for (const auto& [key, tasks] : tasks_)
    threads_.emplace_back([this, &tasks = tasks] {
      for (const Task& task : tasks)
        if (const Status done = run_task(task); !done.ok()) return failed_(done);
    });
}

void Lanes::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace braid::inline emulate

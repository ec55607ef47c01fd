// Threads for what runs beside computation: one for each lane, which does its tasks in order, as
// messages of a channel are. Tasks are given before the threads start. A task that fails ends its
// lane and tells the owner. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "base/status.h"

namespace braid::inline emulate {

class Lanes {
 public:
  // What distinguishes lanes: a direction or kind, a peer, a number.
  using Key = std::tuple<int, int64_t, int64_t>;
  using Task = std::function<Status()>;

  explicit Lanes(std::function<void(const Status&)> failed) : failed_(std::move(failed)) {}
  ~Lanes() { join(); }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void add(const Key& lane, Task task) { tasks_[lane].push_back(std::move(task)); }
  size_t size() const { return tasks_.size(); }
  void start();
  // Waits for the ends of all tasks. Tasks wait with deadlines, so this does.
  void join();

 private:
  std::function<void(const Status&)> failed_;
  std::map<Key, std::vector<Task>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace braid::inline emulate

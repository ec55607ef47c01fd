// Discrete events: tasks with durations that wait for other tasks and, when they use ports (one
// direction of a link of one device), for those. A message uses two ports, a collective those of
// all its devices. A task takes its ports together, when all are free: while it waits for one it
// keeps no other one busy. Of tasks that want a port the one that
// became ready first gets it, ties by number. Not thread-safe; deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace braid::inline sim {

using TaskId = int32_t;
inline constexpr int32_t kNoPort = -1;

class TaskGraph {
 public:
  explicit TaskGraph(int32_t ports) : port_free_(ports, 0.0), woken_(ports, -1.0), parked_(ports) {}

  TaskId add(double duration_s, std::span<const int32_t> ports = {});
  TaskId add(double duration_s, std::initializer_list<int32_t> ports) {
    return add(duration_s, std::span(ports.begin(), ports.size()));
  }
  // `after` starts when `before` has ended. REQUIRES: both exist; -1 for `before` is no edge.
  void wait(TaskId after, TaskId before);

  // Sets start and end of every task. REQUIRES: no circle (a bug check).
  void run();

  double start(TaskId task) const { return tasks_[task].start; }
  double end(TaskId task) const { return tasks_[task].end; }
  double makespan() const { return makespan_; }
  size_t size() const { return tasks_.size(); }

 private:
  struct Task {
    double duration = 0, start = 0, end = 0;
    int32_t first_port = 0, ports = 0;  // in ports_
    int32_t pending = 0;
  };

  // Something that happens at a time: a port that tasks wait for becomes free, a task becomes
  // ready.
  struct Event {
    double at_s = 0;
    bool is_ready = false;
    int32_t id = -1;  // of the port or the task
    friend auto operator<=>(const Event&, const Event&) = default;
  };
  template <typename T>
  using Earliest = std::priority_queue<T, std::vector<T>, std::greater<>>;

  void sort_edges();
  void make_ready(TaskId id);
  void settle();
  void finish(TaskId id);
  int32_t busy_port(const Task& task, double at_s) const;
  bool try_start(TaskId id, double at_s);
  void wake(int32_t port, double at_s);
  void wake_when_free(int32_t port);

  std::vector<Task> tasks_;
  std::vector<int32_t> ports_;                    // of the tasks, in their order
  std::vector<std::pair<TaskId, TaskId>> edges_;  // before, after
  std::vector<int32_t> first_;                    // [task]: of its successors in next_
  std::vector<TaskId> next_;
  std::vector<double> port_free_;
  std::vector<double> woken_;                                // [port]: time of the last event of it
  std::vector<Earliest<std::pair<double, TaskId>>> parked_;  // [port]: by the time they were ready
  Earliest<Event> events_;
  std::vector<TaskId> settled_;  // without ports, not finished yet
  size_t done_ = 0;
  double makespan_ = 0;
};

}  // namespace braid::inline sim

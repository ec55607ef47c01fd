// Discrete events: tasks with durations that wait for other tasks and, when they use ports (one
// direction of a link of one device), for those. Of tasks that want a port the one that became
// ready first gets it, ties by number. Not thread-safe; deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace braid {

using TaskId = int32_t;
inline constexpr int32_t kNoPort = -1;

class TaskGraph {
 public:
  explicit TaskGraph(int32_t ports) : port_free_(ports, 0.0) {}

  TaskId add(double duration_s, int32_t from_port = kNoPort, int32_t to_port = kNoPort);
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
    int32_t from_port = kNoPort, to_port = kNoPort;
    int32_t pending = 0;
  };

  void sort_edges();

  std::vector<Task> tasks_;
  std::vector<std::pair<TaskId, TaskId>> edges_;  // before, after
  std::vector<int32_t> first_;                    // [task]: of its successors in next_
  std::vector<TaskId> next_;
  std::vector<double> port_free_;
  double makespan_ = 0;
};

}  // namespace braid

#include "sim/task_graph.h"

#include <algorithm>
#include <queue>

#include "base/status.h"

namespace braid {

TaskId TaskGraph::add(double duration_s, int32_t from_port, int32_t to_port) {
  tasks_.push_back({duration_s, 0, 0, from_port, to_port, 0});
  return static_cast<TaskId>(tasks_.size()) - 1;
}

void TaskGraph::wait(TaskId after, TaskId before) {
  if (before < 0) return;
  edges_.push_back({before, after});
  ++tasks_[after].pending;
}

void TaskGraph::sort_edges() {
  first_.assign(tasks_.size() + 1, 0);
  for (const auto& edge : edges_) ++first_[edge.first + 1];
  for (size_t i = 0; i < tasks_.size(); ++i) first_[i + 1] += first_[i];
  next_.resize(edges_.size());
  std::vector<int32_t> at(first_.begin(), first_.end() - 1);
  for (const auto& edge : edges_) next_[at[edge.first]++] = edge.second;
}

// Tasks without ports are settled as soon as they are ready. A task with ports goes through the
// queue: when it comes out, everything that could have become ready before it is known.
void TaskGraph::run() {
  sort_edges();
  using Ready = std::pair<double, TaskId>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> queue;
  std::vector<TaskId> settled;
  size_t done = 0;
  const auto make_ready = [&](TaskId id) {
    const Task& task = tasks_[id];
    if (task.from_port != kNoPort || task.to_port != kNoPort) {
      queue.push({task.start, id});
    } else {
      settled.push_back(id);
    }
  };
  for (TaskId id = 0; id < static_cast<TaskId>(tasks_.size()); ++id)
    if (tasks_[id].pending == 0) make_ready(id);
  while (!settled.empty() || !queue.empty()) {
    TaskId id;
    if (!settled.empty()) {
      id = settled.back();
      settled.pop_back();
    } else {
      id = queue.top().second;
      queue.pop();
      for (const int32_t port : {tasks_[id].from_port, tasks_[id].to_port})
        if (port != kNoPort) tasks_[id].start = std::max(tasks_[id].start, port_free_[port]);
    }
    Task& task = tasks_[id];
    task.end = task.start + task.duration;
    for (const int32_t port : {task.from_port, task.to_port})
      if (port != kNoPort) port_free_[port] = task.end;
    makespan_ = std::max(makespan_, task.end);
    ++done;
    for (int32_t i = first_[id]; i < first_[id + 1]; ++i) {
      Task& next = tasks_[next_[i]];
      next.start = std::max(next.start, task.end);
      if (--next.pending == 0) make_ready(next_[i]);
    }
  }
  BRAID_CHECK(done == tasks_.size(), "tasks wait for each other in a circle");
}

}  // namespace braid

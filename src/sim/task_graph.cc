#include "sim/task_graph.h"

#include <algorithm>

#include "base/status.h"

namespace braid::inline sim {

TaskId TaskGraph::add(double duration_s, std::span<const int32_t> ports) {
  tasks_.push_back({duration_s, 0, 0, static_cast<int32_t>(ports_.size()),
                    static_cast<int32_t>(ports.size()), 0});
  ports_.insert(ports_.end(), ports.begin(), ports.end());
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

// Tasks without ports are settled as soon as they are ready. A task with ports waits for its event:
// when that comes out of the queue, everything that could have become ready before it is known.
void TaskGraph::make_ready(TaskId id) {
  const Task& task = tasks_[id];
  if (task.ports == 0) {
    settled_.push_back(id);
  } else {
    events_.push({task.start, true, id});
  }
}

void TaskGraph::settle() {
  while (!settled_.empty()) {
    const TaskId id = settled_.back();
    settled_.pop_back();
    finish(id);
  }
}

void TaskGraph::finish(TaskId id) {
  Task& task = tasks_[id];
  task.end = task.start + task.duration;
  makespan_ = std::max(makespan_, task.end);
  ++done_;
  for (int32_t i = first_[id]; i < first_[id + 1]; ++i) {
    Task& next = tasks_[next_[i]];
    next.start = std::max(next.start, task.end);
    if (--next.pending == 0) make_ready(next_[i]);
  }
}

int32_t TaskGraph::busy_port(const Task& task, double at_s) const {
  for (int32_t i = task.first_port; i < task.first_port + task.ports; ++i)
    if (port_free_[ports_[i]] > at_s) return ports_[i];
  return kNoPort;
}

// Starts the task, or leaves it with a port that it waits for.
bool TaskGraph::try_start(TaskId id, double at_s) {
  Task& task = tasks_[id];
  const int32_t busy = busy_port(task, at_s);
  if (busy != kNoPort) {
    parked_[busy].push({task.start, id});
    wake_when_free(busy);
    return false;
  }
  task.start = at_s;
  finish(id);
  for (int32_t i = task.first_port; i < task.first_port + task.ports; ++i)
    port_free_[ports_[i]] = task.end;
  return true;
}

// REQUIRES: it is busy.
void TaskGraph::wake_when_free(int32_t port) {
  if (std::exchange(woken_[port], port_free_[port]) != port_free_[port])
    events_.push({port_free_[port], false, port});
}

void TaskGraph::wake(int32_t port, double at_s) {
  while (!parked_[port].empty() && port_free_[port] <= at_s) {
    const TaskId id = parked_[port].top().second;
    parked_[port].pop();
    try_start(id, at_s);
  }
  if (!parked_[port].empty()) wake_when_free(port);
}

void TaskGraph::run() {
  sort_edges();
  for (TaskId id = 0; id < static_cast<TaskId>(tasks_.size()); ++id)
    if (tasks_[id].pending == 0) make_ready(id);
  settle();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    event.is_ready ? void(try_start(event.id, event.at_s)) : wake(event.id, event.at_s);
    settle();
  }
  BRAID_CHECK(done_ == tasks_.size(), "tasks wait for each other in a circle");
}

}  // namespace braid::inline sim

#include "device_streams.h"

#include <array>
#include <deque>
#include <map>
#include <mutex>

#include "test_device.h"

namespace braid {
namespace {

using Key = std::pair<c10::DeviceIndex, c10::StreamId>;

struct Queue {
  std::deque<std::function<void()>> works;
  int64_t done = 0;
};

// Recursive: work may wait for another stream.
std::recursive_mutex mutex;
std::map<Key, Queue>& queues() {
  static auto* all = new std::map<Key, Queue>();
  return *all;
}
c10::StreamId last_stream = 0;
thread_local c10::DeviceIndex device_of_thread = 0;
thread_local std::array<c10::StreamId, kTestDevices> stream_of_thread = {};

Queue& queue_of(c10::Stream stream) { return queues()[{stream.device_index(), stream.id()}]; }

void work_until(Queue& queue, int64_t works) {
  while (queue.done < works && !queue.works.empty()) {
    const std::function<void()> work = std::move(queue.works.front());
    queue.works.pop_front();
    ++queue.done;
    work();
  }
}

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

}  // namespace

c10::DeviceIndex current_device() { return device_of_thread; }
void set_current_device(c10::DeviceIndex device) { device_of_thread = device; }
c10::Stream current_stream(c10::DeviceIndex device) {
  return stream_of(device, stream_of_thread[device]);
}
void set_current_stream(c10::Stream stream) {
  stream_of_thread[stream.device_index()] = stream.id();
}

c10::Stream new_stream(c10::DeviceIndex device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return stream_of(device, ++last_stream);
}

void put_on_stream(c10::Stream stream, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  queue_of(stream).works.push_back(std::move(work));
}

bool is_idle(c10::Stream stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return queue_of(stream).works.empty();
}

void finish_stream(c10::Stream stream) { finish_until(place_now(stream)); }

void finish_device(c10::DeviceIndex device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  for (auto& [key, queue] : queues())
    if (key.first == device)
      work_until(queue, queue.done + static_cast<int64_t>(queue.works.size()));
}

StreamPlace place_now(c10::Stream stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const Queue& queue = queue_of(stream);
  return {stream, queue.done + static_cast<int64_t>(queue.works.size())};
}

bool is_reached(const StreamPlace& place) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return queue_of(place.stream).done >= place.works;
}

void finish_until(const StreamPlace& place) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  work_until(queue_of(place.stream), place.works);
}

}  // namespace braid

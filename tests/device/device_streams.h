// The streams of the test device. A copy that was asked for without blocking is put on its stream
// and happens when something waits for that stream: the host, an event, or an operator that runs
// on it. Code that forgets to wait therefore reads what was there before. Thread-safe.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>

namespace braid {

// Of the calling thread.
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
void set_current_stream(c10::Stream stream);

c10::Stream new_stream(c10::DeviceIndex device);
void put_on_stream(c10::Stream stream, std::function<void()> work);
bool is_idle(c10::Stream stream);
// Does all work of the stream now.
void finish_stream(c10::Stream stream);
void finish_device(c10::DeviceIndex device);

// A place in a stream's work.
struct StreamPlace {
  c10::Stream stream;
  int64_t works = 0;  // of the stream that come before it
};
StreamPlace place_now(c10::Stream stream);
bool is_reached(const StreamPlace& place);
void finish_until(const StreamPlace& place);

}  // namespace braid

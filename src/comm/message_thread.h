// A thread that passes messages on beside the one that executes a rank's list. It may wait for a
// message long before the peer comes to send it: so its waits have no deadline, and the position
// board says nothing of them, until the rank itself waits for the thread. The thread calls wait(),
// its owner the rest.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "comm/communicator.h"

namespace braid::inline comm {

class MessageThread {
 public:
  using Work = std::function<Status(MessageThread&)>;
  // Begins the work, with gradients off.
  explicit MessageThread(Work work);
  // Ends what the thread waits for.
  ~MessageThread();
  MessageThread(const MessageThread&) = delete;
  MessageThread& operator=(const MessageThread&) = delete;

  // As Pending::wait(). kUnavailable also where the thread is to end.
  Status wait(Pending& pending);

  // Waits for the work and returns what it did, or throws what it threw. kDeadline names the
  // message that has not come, though the rank has waited for it as long as for any other.
  Status finish();
  // What it has begun to send and to receive. REQUIRES: finish() has returned.
  const TransferCounts& begun() const { return begun_; }

 private:
  void run(const Work& work);
  void now_waits_for(StartedWork* message);

  std::mutex mutex_;
  std::condition_variable changed_;
  StartedWork* waits_for_ = nullptr;
  int64_t turn_ = 0;  // of waits_for_
  bool done_ = false, ends_ = false;
  Status status_;
  std::exception_ptr thrown_;
  TransferCounts begun_;
  std::thread thread_;  // last: begins when all else is there
};

}  // namespace braid::inline comm

// Copies of host memory beside what the caller computes: one thread that does what it is given in
// that order, as the copying stream of an accelerator does. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace braid::inline device {

class CopyThread {
 public:
  CopyThread();
  ~CopyThread();  // after all that it was given
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;

  // Does this after all that was given before; returns its number. REQUIRES: it throws nothing and
  // what it refers to stays until wait().
  int64_t add(std::function<void()> copy);
  // Until it is done. Nothing else runs on the thread, so that is as long as the copies take.
  void wait(int64_t number);
  bool done(int64_t number) const;

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  int64_t added_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace braid::inline device

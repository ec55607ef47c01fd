#include "device/copy_thread.h"

#include <utility>

namespace braid::inline device {

CopyThread::CopyThread() : thread_([this] { run(); }) {}

CopyThread::~CopyThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t CopyThread::add(std::function<void()> copy) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(copy));
  changed_.notify_all();
  return ++added_;
}

void CopyThread::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

bool CopyThread::done(int64_t number) const {
  const std::lock_guard lock(mutex_);
  return done_ >= number;
}

void CopyThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::function<void()> copy = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    copy();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace braid::inline device

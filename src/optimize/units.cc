#include "optimize/units.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace braid::optimize {
namespace {

class Executor {
 public:
  Executor(UnitSource& source, const UnitOptions& options) : source_(source), options_(options) {}

  UnitReport run() {
    const int extra = std::min(options_.threads, source_.window()) - 1;
    std::vector<std::thread> threads;
    threads.reserve(extra);
    for (int i = 0; i < extra; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    while (finished_ < started_) finish_next();
    return {.units = finished_, .exhausted = exhausted_};
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      const int64_t unit = take(lock);
      if (unit < 0) return;
      lock.unlock();
      source_.run(unit);
      lock.lock();
      Slot& slot = slots_[unit % kUnitWindow];
      slot.elapsed_s = options_.elapsed_s ? options_.elapsed_s() : 0.0;
      slot.done = true;
      changed_.notify_all();
    }
  }

  // Starts the next unit once all results that it must know are in, and no later result; -1 when
  // there is none.
  int64_t take(std::unique_lock<std::mutex>& lock) {
    while (!ended_) {
      const bool window_full = started_ - finished_ >= source_.window();
      if (!window_full && !wants_result_) {
        if (started_ >= options_.max_units || (options_.stop && options_.stop())) return end();
        if (source_.start(started_)) return started_++;
        if (started_ == finished_) {
          exhausted_ = true;
          return end();
        }
        wants_result_ = true;
      }
      if (slots_[finished_ % kUnitWindow].done) {
        finish_next();
      } else {
        changed_.wait(lock);
      }
    }
    return -1;
  }

  int64_t end() {
    ended_ = true;
    changed_.notify_all();
    return -1;
  }

  void finish_next() {
    Slot& slot = slots_[finished_ % kUnitWindow];
    source_.finish(finished_, slot.elapsed_s);
    slot.done = false;
    ++finished_;
    wants_result_ = false;
    changed_.notify_all();
  }

  struct Slot {
    bool done = false;
    double elapsed_s = 0;
  };

  UnitSource& source_;
  const UnitOptions& options_;
  // Guarded by mutex_ while threads run.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Slot, kUnitWindow> slots_;
  int64_t started_ = 0;
  int64_t finished_ = 0;
  bool wants_result_ = false;  // the source asked for one more result before it can start a unit
  bool ended_ = false;
  bool exhausted_ = false;
};

}  // namespace

UnitReport run_units(UnitSource& source, const UnitOptions& options) {
  BRAID_CHECK(options.threads >= 1, "at least one thread");
  return Executor(source, options).run();
}

}  // namespace braid::optimize

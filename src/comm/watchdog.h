// The thread of each rank that keeps the job from hanging: it says that this rank lives and where
// it is, watches one other rank (the next one), and when any rank has failed prints where this rank
// is and ends the process with exit code 1, since a peer inside a collective cannot be called back
// (communicators of GPUs are aborted first).
// A rank that waits for one that works is alive, however long; one that is stopped is named; one
// whose process is gone, that gives no sign of life for `lost_s`, or that makes no progress for
// `stall_s` (comm/stall.h), has failed, and so has the job whose ranks wait for each other.
// Where the store itself does not answer, each rank ends by itself (comm/store_silence.h).
// Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "comm/beat.h"
#include "comm/failure.h"
#include "comm/membership.h"
#include "comm/position.h"
#include "comm/stall.h"
#include "comm/store.h"
#include "comm/store_silence.h"

namespace braid::inline comm {

struct WatchdogOptions {
  double interval_s = 1;    // between two signs of life
  double quiet_s = 5;       // without a sign of life: named in the log
  double lost_s = 25;       // without a sign of life: failed, unless known to be stopped
  double stopped_s = 300;   // a process that is seen to be stopped may stay so for this long
  double stall_s = 300;     // without progress: failed
  double launcher_s = 1.5;  // a process that is gone: left to Braid's launcher, which knows its end
};

class Watchdog {
 public:
  // Takes the rank for this process and starts the thread over a connection of its own. A rank that
  // another process has is kInvalidInput that names that. REQUIRES: board outlives the object.
  static Result<std::unique_ptr<Watchdog>> start(Store& store, const Membership& membership,
                                                 PositionBoard& board,
                                                 const WatchdogOptions& options);
  ~Watchdog();

  // Says that this rank ends as planned, so that nobody misses it, and stops the thread.
  void finish();

  // From now on (WatchdogOptions::stall_s).
  void set_stall_s(double seconds) { stall_s_ = seconds; }

  // Its connection to the store, for requests that the server answers at once.
  std::shared_ptr<Store> store() const { return store_; }

  // Ends the process because `failure` happened elsewhere: prints this rank's position first.
  [[noreturn]] void end_process(const RankFailure& failure);

 private:
  Watchdog(std::unique_ptr<Store> store, const Membership& membership, PositionBoard& board,
           const WatchdogOptions& options);
  void run();
  Status look_once();
  void say_for_whom(const Beat& own);
  void judge_watched(const std::string& beat);
  std::string watched_position() const;
  void judge_gone(double now);
  // The rank that serves the store, which this one asks; none: it does so itself.
  int64_t server() const { return membership_.store_exists ? kLaunchersStore : 0; }
  [[noreturn]] void end_without_store(const std::string& cause);
  void declare_lost(const std::string& cause, bool lives = true);
  void declare(const RankFailure& failure);
  [[noreturn]] void end_now(const RankFailure& failure);  // REQUIRES: ending_ is held

  std::shared_ptr<Store> store_;
  Membership membership_;
  PositionBoard& board_;
  WatchdogOptions options_;

  // Of the thread alone: the rank that is watched, since when it has said nothing new, and from
  // when on this rank says for whom it waits.
  const int64_t watched_;
  StallJudge stall_;
  double notice_s_;
  std::string last_beat_, process_;
  std::optional<PositionView> view_;  // of a process of this machine
  double last_change_s_ = 0;
  std::optional<double> gone_since_s_;
  bool named_ = false, watched_done_ = false;
  int64_t beats_ = 0;

  std::atomic<double> stall_s_;
  std::atomic<bool> stop_{false};
  std::mutex ending_;  // of the thread that ends the process: it has said why
  std::mutex mutex_;
  std::condition_variable wake_;
  std::unique_ptr<StoreSilence> silence_;  // null: this rank serves the store
  std::thread thread_;
};

// The rank that serves the store lets the others read a failure before it ends: waits until all of
// them have, for `limit_s` at most, but for the one that `failed` and is gone.
inline constexpr double kEndings_s = 5;
void await_endings(Store& store, const Membership& membership, int64_t failed = 0,
                   double limit_s = kEndings_s);

// The key of the store under which the process of a rank says its process_identity().
std::string process_key(int64_t rank);
// "process 123 of this machine", or "a process of another machine".
std::string process_text(const std::string& identity);

// What the system says of a process of this machine.
enum class ProcessState { kRunning, kStopped, kGone, kElsewhere };
// "MACHINE PID START" of this process, for process_state() in another one.
std::string process_identity();
// kElsewhere: a process of another machine, of which nothing is known.
ProcessState process_state(const std::string& identity);
// The number of a process of this machine that lives.
std::optional<pid_t> living_process(const std::string& identity);

}  // namespace braid::inline comm

// Where this rank is: phase, instruction and the wait that it is in. Every message about a wait or
// a failure names it. It lies in memory that other processes of the machine can map (PositionView):
// what a killed rank last wrote there outlives it as long as somebody looks. Thread-safe: the rank
// writes, its watchdog and other processes read. Writing takes a microsecond and no system call.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace braid::inline comm {

struct SharedPosition;  // the text as it lies in the memory

// A wait that a rank is in: for which ranks, and for how long by now.
struct RankWait {
  std::vector<int64_t> peers;
  double seconds = 0;

  friend bool operator==(const RankWait&, const RankWait&) = default;
};

// A transfer that a device makes while the host goes on.
struct DeviceTransfer {
  std::string what;
  std::shared_ptr<const std::vector<int64_t>> peers;
  double deadline_s = 0;
  // How it ended; nothing while it is on its way.
  std::function<std::optional<Status>()> ended;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

class PositionBoard {
 public:
  PositionBoard();
  ~PositionBoard();
  PositionBoard(const PositionBoard&) = delete;
  PositionBoard& operator=(const PositionBoard&) = delete;

  // phase: "step 12, call update_actor"; instruction: "instruction 7 (schedule)", "" for none.
  void enter(const std::string& phase, const std::string& instruction = "");
  // Another instruction of the same phase.
  void proceed(const std::string& instruction);

  // "step 12, call update_actor, instruction 7 (schedule), waiting: all_reduce of ...".
  std::string text() const;

  // Says for its lifetime that the rank waits for `what`, which comes from these ranks: from none
  // of them where the wait has a deadline and notices of its own. Its begin and end are progress.
  // REQUIRES: `peers` outlives it.
  class Waiting {
   public:
    Waiting(PositionBoard& board, std::string what) : Waiting(board, std::move(what), kNone) {}
    Waiting(PositionBoard& board, std::string what, const std::vector<int64_t>& peers);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    friend class PositionBoard;
    static inline const std::vector<int64_t> kNone;
    PositionBoard& board_;
    const std::string what_;
    const std::vector<int64_t>& peers_;
    const std::chrono::steady_clock::time_point begin_;
  };

  // The host does not wait for this one: as long as it is on its way, the rank waits for its peers
  // where it is not in another wait.
  void follow(DeviceTransfer transfer);
  // Forgets the transfers that have ended, each of which is progress. The failure of the oldest one
  // that failed, or that is not done by its deadline (kDeadline). To be called again and again.
  Status settle();

  // The wait that the rank is in, with its peers once it is this old; nothing where it works.
  std::optional<RankWait> waiting(double peers_after_s = 0) const;

 private:
  // All of these REQUIRE that mutex_ is held.
  std::string text_locked() const;
  void publish();
  Status forget_ended();
  double followed_s() const;  // for how long the oldest transfer has been what is waited for

  mutable std::mutex mutex_;
  std::string phase_ = "starting", instruction_;
  std::vector<const Waiting*> waits_;  // of all threads; the newest one is told
  std::deque<DeviceTransfer> followed_;
  std::chrono::steady_clock::time_point last_ended_;  // of those that were followed
  int file_ = -1;  // of the memory, under kPositionName; -1: nobody else can look
  SharedPosition* shared_ = nullptr;
};

// Reads the board of another process of this machine, also after that process has died. Not
// thread-safe.
class PositionView {
 public:
  // Nothing where the process has no board yet, is gone, or belongs to another user.
  static std::optional<PositionView> open(pid_t pid);
  PositionView(PositionView&& other) noexcept;
  PositionView& operator=(PositionView&& other) noexcept;
  ~PositionView();

  // The board's text() at this moment, or at that of the process's death.
  std::string text() const;

 private:
  explicit PositionView(const SharedPosition* shared) : shared_(shared) {}

  const SharedPosition* shared_;  // null once moved from
};

}  // namespace braid::inline comm

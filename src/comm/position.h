// Where this rank is: phase, instruction and the wait that it is in. Every message about a wait or
// a failure names it. It lies in memory that other processes of the machine can map (PositionView):
// what a killed rank last wrote there outlives it as long as somebody looks. Thread-safe: the rank
// writes, its watchdog and other processes read. Writing takes a microsecond and no system call.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <optional>
#include <string>

namespace braid::inline comm {

struct SharedPosition;  // the text as it lies in the memory

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

  // Says for its lifetime that the rank waits for `what`.
  class Waiting {
   public:
    Waiting(PositionBoard& board, std::string what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    PositionBoard& board_;
  };

 private:
  std::string text_locked() const;
  void publish();  // REQUIRES: mutex_ is held

  mutable std::mutex mutex_;
  std::string phase_ = "starting", instruction_, waiting_;
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

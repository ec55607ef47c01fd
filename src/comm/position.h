// Where this rank is: phase, instruction and the wait that it is in. Every message about a wait or
// a failure names it. Thread-safe: the rank writes, its watchdog reads.
#pragma once

#include <mutex>
#include <string>

namespace braid {

class PositionBoard {
 public:
  // phase: "step 12, train actor"; instruction: "instruction 7 (forward layers 0-3)", "" for none.
  void enter(const std::string& phase, const std::string& instruction = "");

  // "step 12, train actor, instruction 7 (forward layers 0-3), waiting: all_reduce of ...".
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
  mutable std::mutex mutex_;
  std::string phase_ = "starting", instruction_, waiting_;
};

}  // namespace braid

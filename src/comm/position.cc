#include "comm/position.h"

#include "base/text.h"

namespace braid {

void PositionBoard::enter(const std::string& phase, const std::string& instruction) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  instruction_ = instruction;
}

std::string PositionBoard::text() const {
  const std::lock_guard lock(mutex_);
  std::string out = phase_;
  if (!instruction_.empty()) out += cat(", ", instruction_);
  if (!waiting_.empty()) out += cat(", waiting: ", waiting_);
  return out;
}

PositionBoard::Waiting::Waiting(PositionBoard& board, std::string what) : board_(board) {
  const std::lock_guard lock(board_.mutex_);
  board_.waiting_ = std::move(what);
}

PositionBoard::Waiting::~Waiting() {
  const std::lock_guard lock(board_.mutex_);
  board_.waiting_.clear();
}

}  // namespace braid

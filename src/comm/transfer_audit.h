// Whether what this process gives to the backends in a piece of work is what its list says,
// transfer by transfer. Off unless check_transfers() was called; then a difference ends the program
// with both sides of it. Not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "comm/transfer_count.h"

namespace braid::inline comm {

// From here on audits compare. Before any work begins.
void check_transfers();
bool checks_transfers();

// The differences of two counts, line by line; "" = there are none.
std::string transfer_differences(const TransferCounts& listed, const TransferCounts& sent);

class TransferAudit {
 public:
  // Compares nothing.
  TransferAudit() = default;
  // One that compares where check_transfers() was called.
  static TransferAudit begin();

  bool on() const { return on_; }

  // Counts what this process sends during its lifetime. REQUIRES: the audit stays where it is.
  class Counting {
   public:
    explicit Counting(TransferAudit& audit) {
      if (audit.on_) watch_.emplace(&audit.counted_);
    }

   private:
    std::optional<TransferWatch> watch_;
  };

  // So many transfers are listed, beside those that were before.
  void expect(const TransferKind& kind, int64_t count = 1);
  void expect(const TransferCounts& listed);
  // All that was expected has been sent, and nothing else. `what` was done, in messages.
  void settle(const std::string& what);

 private:
  bool on_ = false;
  TransferCounts counted_, expected_;
};

}  // namespace braid::inline comm

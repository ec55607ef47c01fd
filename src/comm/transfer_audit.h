// Whether what this process gives to the backends in a piece of work is what its list says,
// transfer by transfer. Off unless check_transfers() was called; then a difference ends the program
// with both sides of it. Not thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "comm/transfer_count.h"

namespace braid::inline comm {

// From here on audits compare. Before any work begins.
void check_transfers();
bool checks_transfers();

// The differences of two counts, line by line; "" = there are none.
std::string transfer_differences(const TransferCounts& listed, const TransferCounts& sent);

// Whether anything is sent that no audit counts. One at a time.
class StepAudit {
 public:
  // Counts from here on, where check_transfers() was called.
  StepAudit();
  ~StepAudit();
  StepAudit(const StepAudit&) = delete;
  StepAudit& operator=(const StepAudit&) = delete;

  // All that was sent was counted by an audit, or is what ranks say to each other.
  void settle(const std::string& what);

 private:
  friend class AccountedFor;
  TransferCounts sent_, accounted_;
  std::optional<TransferWatch> watch_;
};

// What is sent during its lifetime is no business of an open StepAudit: an audit counts it, or it
// is what ranks say to each other beside their lists (docs/ranks.md names all of that).
class AccountedFor {
 public:
  AccountedFor();
  ~AccountedFor();
  AccountedFor(const AccountedFor&) = delete;
  AccountedFor& operator=(const AccountedFor&) = delete;

 private:
  std::optional<TransferWatch> watch_;  // of the outermost
};
using RanksTalk = AccountedFor;

class TransferAudit {
 public:
  // Compares nothing.
  TransferAudit() = default;
  // One that compares where check_transfers() was called.
  static TransferAudit begin();

  bool on() const { return on_; }

  // One that counts and compares nothing: what is sent says nothing, since it was begun twice or
  // has not ended.
  static TransferAudit forgotten();

  // Counts what this process sends during its lifetime. REQUIRES: the audit stays where it is.
  class Counting {
   public:
    explicit Counting(TransferAudit& audit) {
      if (audit.on_ || audit.forgotten_) accounted_.emplace();
      if (audit.on_) watch_.emplace(&audit.counted_);
    }

   private:
    std::optional<AccountedFor> accounted_;
    std::optional<TransferWatch> watch_;
  };

  // What else was sent, of which Counting knows nothing: in a thread with OwnTransfers.
  void count(const TransferCounts& sent);
  // So many transfers are listed, beside those that were before.
  void expect(const TransferKind& kind, int64_t count = 1);
  void expect(const TransferCounts& listed);
  // All that was expected has been sent, and nothing else. `what` was done, in messages.
  void settle(const std::string& what);

 private:
  bool on_ = false, forgotten_ = false;
  TransferCounts counted_, expected_;
};

// Runs a piece of work that sends what `listed` says, which is asked where audits compare, and
// nothing else.
Status audited(const std::string& what, const std::function<TransferCounts()>& listed,
               const std::function<Status()>& run);

}  // namespace braid::inline comm

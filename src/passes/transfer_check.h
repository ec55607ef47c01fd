// Whether what a rank sends inside of a call is what the ops that it executes list, transfer by
// transfer (program/listed_transfers.h): kind, group or peer, number and bytes
// (comm/transfer_audit.h). Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/transfer_audit.h"
#include "nn/model.h"
#include "program/listed_transfers.h"

namespace braid::inline passes {

class TransferCheck {
 public:
  // Compares nothing.
  TransferCheck() = default;
  // Of a call with this model, whose gradients it sums where `trains` and whose passes run `beside`
  // another's. REQUIRES: what the frame refers to outlives this.
  TransferCheck(const CallFrame& frame, const Model& model, bool trains, bool beside = false);

  // Counts what this process sends during its lifetime. REQUIRES: the check stays where it is.
  class Counting : TransferAudit::Counting {
   public:
    explicit Counting(TransferCheck& check) : TransferAudit::Counting(check.audit_) {}
  };

  // An op was executed.
  void expect(const Expansion& ops, const Op& op, const OpRows& rows);
  // `times` more transfers of a collective over this many bytes, which the list foresees only as
  // something that may come.
  void expect(const OpGroup& group, OpKind kind, int64_t bytes, int64_t times);
  // All that was expected has been sent, and nothing else. `what` was executed, in messages.
  void settle(const std::string& what) { audit_.settle(what); }
  // What was sent says nothing: an op was begun twice, or not ended.
  void forget() {
    *this = TransferCheck();
    audit_ = TransferAudit::forgotten();
  }

 private:
  std::optional<CallFrame> frame_;
  CallTensors tensors_;
  bool beside_ = false;
  TransferAudit audit_;
};

// Adds what an op of a call lists to some counts; `beside`: its passes run beside another's.
void add_listed(const std::vector<ListedTransfer>& listed, const Expansion& ops, const Op& op,
                bool beside, TransferCounts* counts);

}  // namespace braid::inline passes

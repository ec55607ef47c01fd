// Whether what a rank sends inside of a call is what the ops that it executes list, transfer by
// transfer (program/listed_transfers.h): kind, group, number and bytes. Off unless
// check_transfers() was called; then a difference ends the program with both sides of it. Not
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/transfer_count.h"
#include "nn/model.h"
#include "program/listed_transfers.h"

namespace braid::inline passes {

// From here on calls compare. Before any call begins.
void check_transfers();
bool checks_transfers();

class TransferCheck {
 public:
  // Compares nothing.
  TransferCheck() = default;
  // Of a call with this model, whose gradients it sums where `trains` and whose passes run `beside`
  // another's. REQUIRES: what the frame refers to outlives this.
  TransferCheck(const CallFrame& frame, const Model& model, bool trains, bool beside = false);

  // Counts what this process sends during its lifetime. REQUIRES: the check stays where it is.
  class Counting {
   public:
    explicit Counting(TransferCheck& check) {
      if (check.frame_) watch_.emplace(&check.counted_);
    }

   private:
    std::optional<TransferWatch> watch_;
  };

  // An op was executed.
  void expect(const Expansion& ops, const Op& op, const OpRows& rows);
  // `times` more transfers of a collective over this many bytes, which the list foresees only as
  // something that may come.
  void expect(const OpGroup& group, OpKind kind, int64_t bytes, int64_t times);
  // All that was expected has been sent, and nothing else. `what` was executed, in messages.
  void settle(const std::string& what);
  // What was sent says nothing: an op was begun twice, or not ended.
  void forget() { *this = TransferCheck(); }

 private:
  std::optional<CallFrame> frame_;
  CallTensors tensors_;
  bool beside_ = false;
  TransferCounts counted_, expected_;
};

// Adds what an op of a call lists to some counts; `beside`: its passes run beside another's.
void add_listed(const std::vector<ListedTransfer>& listed, const Expansion& ops, const Op& op,
                bool beside, TransferCounts* counts);
// The differences of two counts, line by line; "" = there are none. Messages that are not those of
// passes between stages (other instructions' fields and weights) do not count.
std::string transfer_differences(const TransferCounts& listed, const TransferCounts& sent);

}  // namespace braid

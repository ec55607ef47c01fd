// Counts what this process gives to the backends and takes from them, transfer by transfer: for who
// compares it with what was to be sent. While nobody counts, a transfer costs one look at a flag.
// Transfers may be those of several threads (a backward on a device has its own); watches begin and
// end on one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace braid::inline comm {

enum class Transfer {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kSend,
  kReceive,
  kBarrier,
  kCount
};
const char* transfer_name(Transfer transfer);

// Transfers that are alike.
struct TransferKind {
  Transfer transfer = Transfer::kCount;
  std::string group;     // name of its communicator
  int64_t peer = -1;     // send, receive: a global rank
  int32_t channel = -1;  // send, receive
  // Of the whole: of all that an all-gather brings together, of what each member of a
  // reduce-scatter or an all-to-all gives; else of the tensor.
  int64_t bytes = 0;
  friend auto operator<=>(const TransferKind&, const TransferKind&) = default;
};
// How many of each kind.
using TransferCounts = std::map<TransferKind, int64_t>;

// "2 x all_reduce of 1024 B in group tensor-0-1", for messages.
std::string transfer_text(const TransferKind& kind, int64_t count);

// Adds every transfer that begins during its lifetime to some counts. Those that a communicator
// leaves out (Communicator::leave_out) do not begin, nor do those of groups of one rank.
class TransferWatch {
 public:
  // REQUIRES: `counts` outlives it; it ends before those that began before it.
  explicit TransferWatch(TransferCounts* counts);
  ~TransferWatch();
  TransferWatch(const TransferWatch&) = delete;
  TransferWatch& operator=(const TransferWatch&) = delete;

  // Whether anybody counts.
  static bool any();
  static void note(const TransferKind& kind);

 private:
  TransferCounts* counts_;
  TransferWatch* before_;
};

// What the calling thread begins during its lifetime goes to these counts and no others: of a
// thread that runs beside the watches of another one.
class OwnTransfers {
 public:
  // REQUIRES: `counts` outlives it; one at a time on a thread.
  explicit OwnTransfers(TransferCounts* counts);
  ~OwnTransfers();
  OwnTransfers(const OwnTransfers&) = delete;
  OwnTransfers& operator=(const OwnTransfers&) = delete;
};

}  // namespace braid::inline comm

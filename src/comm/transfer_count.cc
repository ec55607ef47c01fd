#include "comm/transfer_count.h"

#include <atomic>
#include <mutex>

#include "base/text.h"

namespace braid::inline comm {
namespace {

std::atomic<TransferWatch*> innermost = nullptr;
std::mutex counting;
thread_local TransferCounts* own = nullptr;

}  // namespace

const char* transfer_name(Transfer transfer) {
  switch (transfer) {
    case Transfer::kAllReduce:
      return "all_reduce";
    case Transfer::kReduceScatter:
      return "reduce_scatter";
    case Transfer::kAllGather:
      return "all_gather";
    case Transfer::kBroadcast:
      return "broadcast";
    case Transfer::kAllToAll:
      return "all_to_all";
    case Transfer::kSend:
      return "send";
    case Transfer::kReceive:
      return "receive";
    case Transfer::kBarrier:
      return "barrier";
    case Transfer::kCount:
      break;
  }
  return "";
}

std::string transfer_text(const TransferKind& kind, int64_t count) {
  std::string out = cat(count, " x ", transfer_name(kind.transfer), " of ", kind.bytes,
                        " B in group ", kind.group);
  if (kind.peer >= 0) out += cat(" with rank ", kind.peer, " on channel ", kind.channel);
  return out;
}

TransferWatch::TransferWatch(TransferCounts* counts) : counts_(counts), before_(innermost) {
  innermost = this;
}
TransferWatch::~TransferWatch() { innermost = before_; }

bool TransferWatch::any() { return own != nullptr || innermost != nullptr; }

void TransferWatch::note(const TransferKind& kind) {
  if (own != nullptr) {
    ++(*own)[kind];
    return;
  }
  const std::lock_guard lock(counting);
  for (TransferWatch* watch = innermost; watch != nullptr; watch = watch->before_)
    ++(*watch->counts_)[kind];
}

OwnTransfers::OwnTransfers(TransferCounts* counts) { own = counts; }
OwnTransfers::~OwnTransfers() { own = nullptr; }

}  // namespace braid::inline comm

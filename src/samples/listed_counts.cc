#include "samples/listed_counts.h"

namespace braid::inline samples {

Transfer transfer_of(OpKind kind) {
  switch (kind) {
    case OpKind::kSend:
      return Transfer::kSend;
    case OpKind::kReceive:
      return Transfer::kReceive;
    case OpKind::kBroadcast:
      return Transfer::kBroadcast;
    case OpKind::kAllGather:
      return Transfer::kAllGather;
    case OpKind::kReduceScatter:
      return Transfer::kReduceScatter;
    case OpKind::kAllToAll:
      return Transfer::kAllToAll;
    default:
      return Transfer::kAllReduce;
  }
}

void add_listed(const std::vector<ListedMessage>& messages, int32_t channel,
                TransferCounts* counts) {
  for (const ListedMessage& message : messages)
    ++(*counts)[{transfer_of(message.kind), "everyone", message.peer.value, channel,
                 message.bytes}];
}

TransferCounts listed_of_fetch(const Call& fetch, int64_t prompts, int64_t samples, int64_t ranks) {
  TransferCounts out;
  if (const auto told = told_in_fetch(fetch, prompts, samples, ranks))
    ++out[{transfer_of(told->kind), "everyone", -1, -1, told->bytes}];
  return out;
}

}  // namespace braid::inline samples

#include "passes/transfer_check.h"

#include <set>

#include "base/status.h"
#include "base/text.h"
#include "passes/model_pass.h"
#include "samples/call_groups.h"

namespace braid::inline passes {
namespace {

bool checks = false;

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

bool of_passes(const TransferKind& kind) { return kind.peer < 0 || is_pass_channel(kind.channel); }

}  // namespace

void check_transfers() { checks = true; }
bool checks_transfers() { return checks; }

TransferCheck::TransferCheck(const CallFrame& frame, const Model& model, bool trains, bool beside) {
  if (!checks) return;
  frame_ = frame;
  beside_ = beside;
  const LoraOptions& lora = model.options().lora;
  tensors_ = call_tensors(model.spec(), trains, {lora.rank, lora.targets});
}

void add_listed(const std::vector<ListedTransfer>& listed, const Expansion& ops, const Op& op,
                bool beside, TransferCounts* counts) {
  for (const ListedTransfer& each : listed) {
    TransferKind kind;
    kind.transfer = transfer_of(each.kind);
    kind.bytes = each.bytes;
    if (each.group < 0) {
      kind.group = "everyone", kind.peer = op.peer.value;
      kind.channel = pass_channel(op, beside);
    } else {
      const OpGroup& group = ops.groups[each.group];
      kind.group = group_name(each.weights ? kWeightsInPasses : group_kind_name(group.kind), group);
    }
    (*counts)[kind] += each.count;
  }
}

void TransferCheck::expect(const Expansion& ops, const Op& op, const OpRows& rows) {
  if (frame_)
    add_listed(transfers_of(*frame_, tensors_, ops, op, rows), ops, op, beside_, &expected_);
}

void TransferCheck::expect(const OpGroup& group, OpKind kind, int64_t bytes, int64_t times) {
  if (!frame_ || times == 0) return;
  expected_[{transfer_of(kind), group_name(group_kind_name(group.kind), group), -1, -1, bytes}] +=
      times;
}

void TransferCheck::settle(const std::string& what) {
  const std::string apart = transfer_differences(expected_, counted_);
  BRAID_CHECK(apart.empty(), cat(what, " sends other than its ops list: ", apart));
  expected_.clear();
  counted_.clear();
}

std::string transfer_differences(const TransferCounts& listed, const TransferCounts& sent) {
  std::set<TransferKind> kinds;
  for (const TransferCounts* counts : {&listed, &sent})
    for (const auto& [kind, count] : *counts)
      if (of_passes(kind)) kinds.insert(kind);
  const auto count_of = [](const TransferCounts& counts, const TransferKind& kind) {
    const auto found = counts.find(kind);
    return found == counts.end() ? int64_t{0} : found->second;
  };
  std::string out;
  for (const TransferKind& kind : kinds) {
    const int64_t expected = count_of(listed, kind), counted = count_of(sent, kind);
    if (expected != counted)
      out += cat(out.empty() ? "" : "; ", transfer_text(kind, counted), ", listed ", expected);
  }
  return out;
}

}  // namespace braid

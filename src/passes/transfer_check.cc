#include "passes/transfer_check.h"

#include "passes/model_pass.h"
#include "samples/call_groups.h"
#include "samples/listed_counts.h"

namespace braid::inline passes {
TransferCheck::TransferCheck(const CallFrame& frame, const Model& model, bool trains, bool beside) {
  audit_ = TransferAudit::begin();
  if (!audit_.on()) return;
  frame_ = frame;
  beside_ = beside;
  const LoraOptions& lora = model.options().lora;
  tensors_ = call_tensors(model.spec(), trains, {lora.rank, lora.targets});
  tensors_.cuts_rows = model.options().tensor_parallel.sequence_parallel;
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
  if (!frame_) return;
  TransferCounts listed;
  add_listed(transfers_of(*frame_, tensors_, ops, op, rows), ops, op, beside_, &listed);
  audit_.expect(listed);
}

void TransferCheck::expect(const OpGroup& group, OpKind kind, int64_t bytes, int64_t times) {
  audit_.expect({transfer_of(kind), group_name(group_kind_name(group.kind), group), -1, -1, bytes},
                times);
}

}  // namespace braid::inline passes

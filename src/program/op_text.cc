#include <iterator>
#include <sstream>

#include "base/text.h"
#include "program/expand.h"

namespace braid::inline program {
namespace {

void write_group(const OpGroup& group, std::ostream& out) {
  out << " " << group_kind_name(group.kind) << " {";
  for (size_t i = 0; i < group.members.size(); ++i) out << (i > 0 ? "," : "") << group.members[i];
  out << "}";
}

void write_body(const Expansion& e, const Op& op, std::ostream& out) {
  const OpBody& body = e.bodies[op.body];
  if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) {
    if (body.embedding) out << " embedding,";
    out << " layers " << body.layers.begin << "-" << body.layers.end - 1;
    if (body.head) out << ", head";
    for (const InsideOp& inside : op.kind == OpKind::kForward ? body.forward : body.backward) {
      out << "; " << inside.times << " x " << op_kind_name(inside.kind);
      write_group(e.groups[inside.group], out);
      if (inside.bytes > 0) out << " " << format_bytes(inside.bytes);
      if (inside.bytes_per_token > 0) out << " " << inside.bytes_per_token << " B a token";
    }
  }
}

void write_rows(const Expansion& e, const Op& op, const Partition* partition, std::ostream& out) {
  if (op.micro_batch < 0) return;
  out << " micro-batch " << op.micro_batch;
  if (partition == nullptr) return;
  out << " {";
  const auto& rows =
      partition->minibatches[op.minibatch].micro_batches[e.at.dp_rank][op.micro_batch];
  for (size_t i = 0; i < rows.size(); ++i) out << (i > 0 ? "," : "") << rows[i];
  out << "}";
}

}  // namespace

const char* op_kind_name(OpKind kind) {
  static constexpr const char* kNames[] = {
      "forward",    "backward",     "loss",           "send",       "receive", "broadcast",
      "all_gather", "all_reduce",   "reduce_scatter", "all_to_all", "norm",    "agree",
      "zero",       "update",       "sample",         "call",       "passes",  "reduce",
      "round",      "region_begin", "region_end",     "reallocate", "share",   "exchange",
      "load",       "offload",      "release",        "repeat",     "tally",   "hand_over"};
  static_assert(std::size(kNames) == static_cast<size_t>(OpKind::kHandOver) + 1);
  return kNames[static_cast<size_t>(kind)];
}

const char* group_kind_name(GroupKind kind) {
  static constexpr const char* kNames[] = {
      "tensor",      "shared",        "context",       "experts", "data",    "shards", "across",
      "expert_data", "expert_shards", "expert_across", "ends",    "replica", "call"};
  return kNames[static_cast<int>(kind)];
}

std::string ops_text(const Expansion& e, const Partition* partition) {
  std::ostringstream out;
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    out << "  " << i << " " << op_kind_name(op.kind);
    if (op.body >= 0) write_body(e, op, out);
    if (op.channel != Channel::kNone)
      out << (op.channel == Channel::kActivations ? " activation" : " gradient") << " at cut "
          << op.cut << (op.kind == OpKind::kSend ? " to " : " from ") << op.peer;
    if (op.group >= 0) write_group(e.groups[op.group], out);
    if (op.bytes > 0) out << " " << format_bytes(op.bytes);
    write_rows(e, op, partition, out);
    if (op.minibatch >= 0) out << " mini-batch " << op.minibatch;
    if (op.after[0] >= 0) out << " after " << op.after[0];
    out << "\n";
  }
  return out.str();
}

}  // namespace braid::inline program

#include "passes/pass_needs.h"

#include <algorithm>

#include "comm/transfer_audit.h"
#include "device/tensor_memory.h"
#include "samples/call_groups.h"

namespace braid::inline passes {
namespace {

// Of what costs the same whatever the tokens, the share of few is too large: they do not count
// beside many.
constexpr double kAsMany = 0.75;

int64_t in_proportion(int64_t bytes, int64_t of_tokens, int64_t tokens) {
  return static_cast<int64_t>(static_cast<double>(bytes) / static_cast<double>(of_tokens) *
                              static_cast<double>(tokens));
}

}  // namespace

const PassNeeds::Measured* PassNeeds::find(const Op& op) const {
  const auto found = measured_.find({op.kind, op.body});
  return found == measured_.end() ? nullptr : &found->second;
}

void PassNeeds::note(const Op& op, int64_t tokens, int64_t most, int64_t kept) {
  Measured& known = measured_[{op.kind, op.body}];
  const double enough = kAsMany * static_cast<double>(known.tokens);
  if (tokens > 0 && static_cast<double>(tokens) >= enough) known = {tokens, most, kept};
}

void HeldByPasses::note(const Op& op, int64_t kept) {
  if (op.holds != 0) micro_batches += op.holds;
  bytes += kept;
  most_micro_batches = std::max(most_micro_batches, micro_batches);
  most_bytes = std::max(most_bytes, bytes);
  if (micro_batches == 1) most_of_one = std::max(most_of_one, bytes);
}

int64_t DeclaredPasses::run(const Op& op) {
  const PassNeeds::Measured* const measured = needs_.find(op);
  if (measured == nullptr) return held_;
  const int64_t of = tokens_(op.micro_batch);
  const int64_t most = held_ + in_proportion(measured->most, measured->tokens, of);
  int64_t& own = kept_[{op.micro_batch, op.body}];
  held_ -= own;  // a backward frees what its forward kept
  own = op.kind == OpKind::kForward && ops_.bodies[op.body].trains
            ? in_proportion(measured->kept, measured->tokens, of)
            : 0;
  held_ += own;
  return most;
}

int64_t PassNeeds::declared(const Expansion& ops, int32_t minibatch,
                            const std::function<int64_t(int32_t)>& tokens) const {
  DeclaredPasses passes(*this, ops, tokens);
  int64_t most = 0;
  for (const Op& op : ops.ops)
    if (op.minibatch == minibatch) most = std::max(most, passes.run(op));
  return most;
}

int64_t micro_batch_tokens(const Partition& partition, const Expansion& ops, int32_t minibatch,
                           int32_t micro_batch) {
  return partition.minibatches[minibatch].tokens[ops.at.dp_rank][micro_batch];
}

Result<bool> finds_bytes(int64_t declared, at::Device device, Communicator* group) {
  const std::optional<int64_t> free = free_tensor_bytes(device);
  if (!free) return true;
  const RanksTalk talk;
  BRAID_ASSIGN(const bool lacks, on_any_rank(declared > *free, group, "memory of a mini-batch"));
  return !lacks;
}

Result<bool> finds_memory(const PassNeeds& needs, const Partition& partition, const Expansion& ops,
                          int32_t minibatch, at::Device device, Communicator* group) {
  if (!free_tensor_bytes(device)) return true;
  const int64_t declared = needs.declared(ops, minibatch, [&](int32_t micro_batch) {
    return micro_batch_tokens(partition, ops, minibatch, micro_batch);
  });
  return finds_bytes(declared, device, group);
}

}  // namespace braid::inline passes

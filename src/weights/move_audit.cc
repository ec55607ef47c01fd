#include "weights/move_audit.h"

#include "program/listed_messages.h"
#include "program/listed_transfers.h"
#include "program/placement.h"
#include "samples/listed_counts.h"
#include "weights/reallocate.h"

namespace braid::inline weights {
namespace {

// The ops around the passes of a call that has no samples: its bodies.
Expansion bodies_of(const CallFrame& frame, DeviceId rank) {
  Partition nothing;
  MiniBatch& minibatch = nothing.minibatches.emplace_back();
  minibatch.micro_batches.resize(frame.where->strategy.dp);
  minibatch.tokens.resize(frame.where->strategy.dp);
  return expand(alone(frame), rank, nothing);
}

// Adds the gathers that bring the slices of a side together, layer by layer.
void add_gathers(const Program& program, const SideOfMove& side, DeviceId rank, int64_t layers,
                 TransferCounts* counts) {
  const CallFrame frame = call_frame(program, side.call);
  const ModelOptions& options = side.instance.model->options();
  CallTensors tensors =
      call_tensors(side.instance.model->spec(), side.instance.gradients != nullptr,
                   {options.lora.rank, options.lora.targets});
  tensors.cuts_rows = options.tensor_parallel.sequence_parallel;
  const Expansion ops = bodies_of(frame, rank);
  for (int64_t layer = kEndsOfModel; layer < layers; ++layer)
    for (const int64_t bytes : gathers_of_layer(frame, tensors, ops, layer))
      ++(*counts)[{Transfer::kAllGather, side.groups.weights->name(), -1, -1, bytes}];
}

// Adds those in which ranks that share the target's slices tell each other what came.
void add_shares(const ModelShape& model, const ParamLayout& to, const Communicator& sharers,
                TransferCounts* counts) {
  std::vector<DeviceId> ranks;
  for (const int64_t member : sharers.members())
    ranks.push_back(DeviceId{static_cast<int32_t>(member)});
  for (const int64_t bytes : gathered_arrivals(model, to, ranks))
    if (bytes > 0) ++(*counts)[{Transfer::kAllGather, sharers.name(), -1, -1, bytes}];
}

}  // namespace

TransferCounts listed_of_reallocation(const Program& program, int32_t entry, DeviceId rank,
                                      int32_t channel, const SideOfMove* source,
                                      const SideOfMove* target) {
  const MovedWeights moved = moved_weights(program, entry);
  TransferCounts out;
  add_listed(messages_of(moved, rank), channel, &out);
  if (source != nullptr && source->instance.shards)
    add_gathers(program, *source, rank, moved.layers, &out);
  if (target == nullptr || !target->instance.shards) return out;
  // Under adapters what lies below them is brought together too.
  if (target->instance.model->options().lora.rank > 0)
    add_gathers(program, *target, rank, moved.layers, &out);
  const RoleId& role = program.copies[program.reallocations[entry].copy].role;
  add_shares(*find_shape(program, role), moved.to, *target->groups.weights, &out);
  return out;
}

TransferCounts listed_of_following(const Program& program, const SideOfMove& source,
                                   DeviceId rank) {
  TransferCounts out;
  add_gathers(program, source, rank, call_frame(program, source.call).model->layers, &out);
  return out;
}

TransferCounts digests_of_reallocation(const Program& program, int32_t entry, DeviceId rank,
                                       int32_t channel) {
  const MovedWeights moved = moved_weights(program, entry);
  TransferCounts out;
  const auto add = [&](const std::vector<Message>& messages) {
    add_listed(digest_messages(messages, rank, moved.number_bytes), channel, &out);
  };
  if (!moved.sliced()) add(moved.messages);
  for (int64_t layer = kEndsOfModel; moved.sliced() && layer < moved.layers; ++layer)
    add(messages_of_layer(moved.messages, moved.kinds, layer));
  return out;
}

}  // namespace braid::inline weights

// The ops that the body of a call consists of on one rank: what the runtime executes, the simulator
// prices and the emulation waits for. Plain values, made by expand() (program/expand.h).
//
// Order. A rank has one list per call and step. Ops that compute run in the order of the list.
// Sends and collectives start when the ops in `after` have ended, in the order of the list among
// those of one channel, and run beside what computes meanwhile; a send never blocks the list. An op
// that computes waits for the ops in its `after` too.
//
// Channels. Messages of one ordered pair of ranks and one kind (activations; gradients of
// activations) are received in the order in which they are sent, so they need no tags. A collective
// belongs to a group; ranks of a group meet in the order of their lists.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "dataflow/graph.h"
#include "program/layout.h"
#include "program/op_kind.h"

namespace braid::inline program {

// Number of the rules of expand(): another one means other ops from equal arguments.
inline constexpr int kExpandRules = 4;

// Ranks that communicate; every member lists them in the same order.
enum class GroupKind {
  kTensor,        // tensor-parallel ranks of one stage of one replica
  kShared,        // those of them that hold the same key-value heads (more ranks than heads)
  kContext,       // ranks that share the tokens of each sequence
  kExperts,       // ranks that the routed experts of a layer are partitioned over
  kData,          // ranks that hold the same dense parameters
  kShards,        // those of them that ZeRO shards over, where it is not all
  kAcross,        // those of them that hold the same shard
  kExpertData,    // ranks that hold the same routed experts, where those have a grid of their own
  kExpertShards,  // those of them that ZeRO shards over, where it is not all
  kExpertAcross,  // those of them that hold the same shard
  kEnds,          // first and last stage of a replica that hold one tied embedding
  kReplica,       // all ranks of one data-parallel rank; the last stage's first rank comes first
  kCall,          // all ranks of the call
};
// Whether its members hold the same parameters, or parts of them.
inline bool among_copies(GroupKind kind) {
  return kind >= GroupKind::kData && kind <= GroupKind::kExpertAcross;
}
const char* group_kind_name(GroupKind kind);

struct OpGroup {
  GroupKind kind = GroupKind::kCall;
  std::vector<DeviceId> members;
  int32_t stride = 1;  // neighbours' distance in the mesh
  friend bool operator==(const OpGroup&, const OpGroup&) = default;
};

// A collective within an op, run `times` times; bytes of each, as TransferKind counts them, are
// bytes + bytes_per_token * the rank's tokens of the micro-batch: bytes_of().
struct InsideOp {
  OpKind kind = OpKind::kAllReduce;
  int32_t group = -1;  // in Expansion::groups
  double times = 0;
  double bytes = 0, bytes_per_token = 0;
  bool at_end = false;   // of the embedding or the head: not once per layer
  bool of_head = false;  // tokens are those that the head takes
  double multiple = 0;   // of which bytes are one: what is cut in equal parts is padded; 0: any
  friend bool operator==(const InsideOp&, const InsideOp&) = default;
};
double bytes_of(const InsideOp& inside, double tokens);

// The virtual pipeline stage that one forward or backward passes, with what happens inside of it.
struct OpBody {
  int32_t part = 0;  // of pp * interleave: chunk * pp + stage
  Interval layers;
  bool embedding = false, head = false;    // the ends of the model
  bool trains = false;                     // keeps activations for its backward
  Recompute recompute = Recompute::kNone;  // activation checkpointing
  // Ranks that share the work of each token, whether they also share out the tokens of norms, and
  // the stages that a micro-batch passes.
  int32_t shards = 1;
  bool sequence_sharded = false;
  int32_t stages = 1;
  int32_t expert_parts = 1;  // of the routed experts of a layer, one of which this rank has
  std::vector<InsideOp> forward, backward;
  friend bool operator==(const OpBody&, const OpBody&) = default;
};

// Part of a model's state.
enum class TensorState { kWeights, kMain, kMoments, kGradients };
struct TensorSlice {
  int32_t copy = -1;  // in Program::copies
  TensorState state = TensorState::kWeights;
  int32_t item = 0;  // in ModelShape::kinds
  Interval layers;
  Interval elements;
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;
};

enum class Channel : int8_t { kNone, kActivations, kGradients };

struct Op {
  OpKind kind = OpKind::kForward;
  OpKind run = OpKind::kCall;        // the kind of the instruction that executes it
  Channel channel = Channel::kNone;  // send, receive
  // Activations of the body and micro-batch: +1 are held from here on, -1 are freed here.
  int8_t holds = 0;
  // First and second of the earlier ops that must have ended, or -1.
  std::array<int32_t, 2> after = {-1, -1};
  int32_t body = -1;   // forward, backward, loss, send and receive: in Expansion::bodies
  int32_t cut = -1;    // send, receive: activations before part `cut` of the model
  DeviceId peer{-1};   // send, receive
  int32_t group = -1;  // collectives, norm, agree, sample: in Expansion::groups
  int32_t what = -1;   // state that it reads or writes: in Expansion::tensors
  double bytes = 0;    // send, receive, collectives: of the whole (TransferKind), without padding
  // Where in the partition: mini-batch of Partition::minibatches, micro-batch of this rank's. -1:
  // none.
  int32_t minibatch = -1, micro_batch = -1;
  // Optimizer steps of this call's role that are in the weights which the op reads, counted from
  // the begin of the call; an update writes the next.
  int32_t version = 0;
  friend bool operator==(const Op&, const Op&) = default;
};

// The ops of one call on one rank, and what they refer to.
struct Expansion {
  CallId call;
  DeviceId rank;
  GridPosition at;
  std::vector<OpBody> bodies;
  std::vector<OpGroup> groups;
  std::vector<std::vector<TensorSlice>> tensors;
  std::vector<InsideOp> sampling;  // inside a sample op, a token for each row that is drawn
  std::vector<Op> ops;
  friend bool operator==(const Expansion&, const Expansion&) = default;
};
// The collectives inside a forward, a backward or a sample op.
const std::vector<InsideOp>& inside_of(const Expansion& expansion, const Op& op);
// Numbers of a state in an entry of the expansion's tensors.
double elements_of(const Expansion& expansion, int32_t what, TensorState state);

}  // namespace braid::inline program

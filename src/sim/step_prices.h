// What the pieces of one step of a program take: ops, rounds of generation, messages, state that
// moves, and the memory that they find. The simulation of a step puts the pieces in their places,
// emulated devices (emulate/) wait for them: both ask here. After prepare() all functions are pure
// and may be called from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "program/call_parts.h"
#include "program/hand_over_messages.h"
#include "program/listed_messages.h"
#include "program/scored_prefixes.h"
#include "sim/call_work.h"
#include "sim/exchange_prices.h"
#include "sim/hand_over_prices.h"
#include "sim/simulate.h"
#include "sim/slice_prices.h"
#include "sim/trace.h"

namespace braid::inline sim {

// Requests of a replica, the tokens that its cache has, rounds to make at most (-1: all), how many
// times as long these take, and seconds of a count of what is left (program/hand_over.h). Where
// caches are copied ahead (program/pre_copy.h): rounds after which ranks tell how far they are,
// with its seconds, and after which copies are sent (-1: neither).
struct ReplicaRequests {
  std::vector<BatchRequest> requests;
  int64_t budget_tokens = 0;
  int64_t most_rounds = -1;
  double pace = 1;
  double count_s = 0;
  int64_t told_after = -1;
  double told_s = 0;
  int64_t copied_after = -1;
};

class StepPrices {
 public:
  // REQUIRES: what is referred to outlives the object.
  StepPrices(const Program& program, const PlanningProblem& problem, const Calibration& calibration,
             const SimOptions& options, SampleLengths lengths);

  // Errors: a device without a model's precision. REQUIRED before anything else.
  Status prepare();

  const SampleLengths& lengths() const { return lengths_; }
  const Workload& workload() const { return problem_.workload; }
  const Efficiency& efficiency(DeviceId device) const { return efficiencies_[device.value]; }
  // REQUIRES: the call uses a model.
  const CallCost& cost(CallId call) const { return *costs_[call.value]; }

  // The samples of a call, and its partition: all epochs, which repeat the mini-batches of the
  // first; no mini-batch of a training call that stays idle.
  std::vector<PartitionSample> samples(CallId call) const;
  // The same as a part of the call has them: some are scored in two parts.
  std::vector<PartitionSample> samples(CallId call, SamplePart part) const;
  PrefixPart prefix_part(CallId call, SamplePart part) const;
  // Of a call that runs in parts all samples are what its ranks own alone.
  const Partition& partition(CallId call, SamplePart part = SamplePart::kAll) const;
  // Of a program that hands its generation over, in their order.
  const std::vector<PricedHandOver>& hand_overs() const { return handed_; }
  // Caches that are copied ahead of the first of them, and the bytes that each rank sends of one.
  const std::vector<CacheCopy>& copies() const { return handed_.front().copied.decided.copies; }
  double copy_bytes(const CacheCopy& copy) const;
  // New tokens so far of what is left at the last one, by row; 0: of others.
  std::vector<int64_t> begun_lens() const;
  // Bytes that a rank of a call holds for beginnings that it has scored, and at most beside them in
  // a part of it.
  double begun_bytes(CallId call, int dp_rank) const;
  double cached_bytes(CallId call, int dp_rank, SamplePart part) const;
  // Seconds until all ranks know what has finished at the first of them; and the messages by which
  // they know it at a later one.
  double first_hand_over_s() const;
  const std::vector<ToldMessage>& told(size_t hand_over) const { return told_[hand_over]; }
  // Bytes of the messages that each rank of a replica sends in a move.
  std::vector<double> moved_messages(size_t hand_over, size_t move) const;
  // What the samples of a micro-batch are to a call, or a part of it.
  MicroBatch micro_batch(CallId call, const SampleRows& rows,
                         const std::vector<PartitionSample>& samples,
                         SamplePart part = SamplePart::kAll) const;
  // Seconds of every op of a rank, in a part of the call. What a reduction hides, it hides behind
  // the last backward of the first data-parallel rank.
  std::vector<double> op_seconds(const Expansion& ops, const Partition& partition,
                                 SamplePart part = SamplePart::kAll) const;
  // Seconds of an update, with the fixed time of an optimizer step.
  double update_s(const Expansion& ops, const Op& op) const;
  // A call without a model on a rank: the fixed time of a step is where its data come in; a role
  // that follows another moves at the speed of device memory, in every step that is priced.
  double host_call_s(CallId call, DeviceId rank) const;

  // Requests of a replica of a generation call, and the tokens that its cache has: what the plan
  // says, else what memory leaves on its fullest device; at least the longest request.
  std::vector<BatchRequest> requests(CallId call, int dp_rank,
                                     SamplePart part = SamplePart::kAll) const;
  int64_t cache_budget(CallId call, int dp_rank, const std::vector<BatchRequest>& requests) const;
  // What a replica of a generation call does in a part of it, for run_rounds(). The cache of a
  // later part stays what it was at the begin; an earlier one ends when it is handed over. Where a
  // generation leaves samples to the next step (sim/carried_steps.h), the requests and rounds of
  // the step with the fullest cache, at such a pace that they take the mean of all steps.
  ReplicaRequests replica_requests(CallId call, int dp_rank, SamplePart part) const;
  // Calls `visit` for the rounds with their seconds and those of the agreements after them, with
  // counts of what is left between them where it is handed over; returns their number.
  int64_t run_rounds(CallId call, const ReplicaRequests& work,
                     const std::function<void(const BatchRound&, double seconds,
                                              double agreement_s)>& visit) const;

  // Rows of the step's samples, [rank]: those whose results of a call, or a part of its samples, a
  // rank has, and those that it needs of what the call reads.
  std::vector<SampleRows> written_rows(CallId call, SamplePart part) const;
  std::vector<SampleRows> read_rows(CallId call, SamplePart part) const;
  // Of a reward call that uses a model: those about which a rank says what that gave.
  std::vector<SampleRows> told_rows(CallId call) const;
  // What an entry of the program's exchanges takes on a rank.
  const ExchangePrice& exchange(int32_t entry, DeviceId rank) const {
    return exchanges_[entry][rank.value];
  }
  LinkTime link(DeviceId from, DeviceId to, double bytes) const;

  // Weights that are slices (ZeRO-3) move in the ranks' own time: a side whose weights are slices
  // brings them together, before they are sent or where they came. Whether an entry of the
  // program's reallocations has such a side.
  bool moves_slices(int32_t entry) const { return moved_weights(program_, entry).sliced(); }
  // What a rank gathers outside of passes: all weights of a copy, for who follows or sends them; of
  // an entry of the reallocations what came. REQUIRES: it shares slices of the copy.
  SliceGather gathered(int32_t copy, DeviceId rank) const;
  SliceGather gathered_arrivals(int32_t entry, DeviceId rank) const;

  // What a load or offload of a rank's list copies: state that training has not changed since it
  // came from the host does not go back.
  struct StateMove {
    double bytes = 0, seconds = 0;
  };
  StateMove state_move(DeviceId rank, int32_t instruction) const;
  // What the first forward of a body on a rank waits for beside all that comes before it: loads,
  // with the share of it that is computed before it comes to their layers, in that order.
  struct LayerWait {
    double share = 0;
    InstructionId load;
  };
  std::vector<LayerWait> layer_waits(const Instruction& first, DeviceId rank,
                                     const OpBody& body) const;
  // What the first update of a call on a rank waits for beside that.
  std::vector<InstructionId> update_waits(const Instruction& first, DeviceId rank) const;

  // Bytes of a device.
  int32_t home_copy(const RoleId& role) const;
  double copy_bytes(int32_t copy, DeviceId device) const;
  double state_bytes(const RoleState& state, DeviceId device) const;
  // Of a load or offload of a device's list: where it is of some layers, of those alone.
  double moved_bytes(const Instruction& move, DeviceId device) const;
  double limit_bytes(DeviceId device) const;
  // Whether the weights of a role are there for its calls alone.
  bool comes_for_calls(const RoleId& role) const;
  // What is there before the step and stays.
  const MemoryUse& base_memory(DeviceId device) const { return base_[device.value]; }

 private:
  void take_carried(CallId call);
  const CallCost& home_cost(const RoleId& role) const;
  bool borrows_memory(const WeightCopy& copy) const;
  bool lives_on_host(const RoleState& state) const;
  void add_base_memory();
  bool changed_since_load(DeviceId rank, int32_t offload) const;
  double held_before(DeviceId device, int32_t instruction) const;
  double window_s(const Expansion& ops, const Partition& partition) const;
  Partition partition_anew(CallId call) const;
  void partition_calls();
  void partition_generations();
  BatchOptions engine_options(CallId generate) const;
  void take_hand_over();
  std::vector<HandOver> handed_alone() const;
  void find_prefixes();
  StepParts step_parts() const;
  void find_computed();
  // A replica that takes samples over has the room that its engine opened with, and more where one
  // of them is longer.
  int64_t later_budget(CallId call, int dp_rank, const std::vector<BatchRequest>& requests) const {
    return std::max(cache_budget(call, dp_rank, requests),
                    cache_budget(call, dp_rank, this->requests(call, dp_rank)));
  }
  const std::vector<SampleRows>& owned(CallId call, SamplePart part) const;
  std::vector<SampleRows> worked_on(CallId call, SamplePart part) const;
  std::vector<SampleRows> scored(CallId call) const;
  std::vector<SampleRows> compared_early(SamplePart part) const;
  bool is_compared_early(CallId call, SamplePart part) const;
  std::vector<SampleRows> computed(CallId call) const;
  std::vector<SampleRows> in_step(CallId call, std::vector<SampleRows> rows) const;
  double everyone_s(CollectiveOp op, double bytes) const;
  void price_exchanges();
  double busiest_port_s(const std::vector<ToldMessage>& messages) const;

  const Program& program_;
  const PlanningProblem& problem_;
  const Calibration& calibration_;
  const SimOptions& options_;
  SampleLengths lengths_;
  std::vector<std::optional<CallCost>> costs_;                // by call
  std::vector<Partition> partitions_;                         // by call; of those with a model
  std::vector<int64_t> predicted_;                            // by sample; empty: nothing is
  std::map<std::pair<CallId, SamplePart>, Partition> parts_;  // of those that run in parts
  std::vector<PricedHandOver> handed_;
  std::map<CallId, std::vector<int64_t>> prefixes_;          // scored before, by row; of scorers
  std::vector<std::vector<ToldMessage>> told_;               // [hand-over]; none at the first
  std::vector<double> counts_s_;                             // [hand-over]: of a count before it
  std::map<CallId, std::vector<ReplicaRequests>> carried_;   // of a generation that leaves samples
  std::map<SamplePart, std::vector<SampleRows>> generated_;  // of a generation that is handed over
  std::map<CallId, std::vector<SampleRows>> computed_;       // of compute calls, by rank
  std::vector<std::vector<ExchangePrice>> exchanges_;        // [entry][rank]
  std::vector<Efficiency> efficiencies_;                     // by device
  std::vector<MemoryUse> base_;                              // by device
};

// Whether copies of weights, by copy, are there when a step begins though they come and go.
std::vector<bool> copies_at_begin(const Program& program);

// The copy that a device has when a reallocation has ended; -1 where it only gives.
int32_t copy_filled_on(const Program& program, const Reallocation& reallocation, DeviceId device);

// A port is one direction of one link of one device.
inline int32_t port_of(DeviceId device, TrackKind track) {
  return device.value * kTrackKinds + static_cast<int32_t>(track);
}
// The ports of a rank's part of an exchange.
std::vector<int32_t> exchange_ports(DeviceId rank, const ExchangePrice& price);
// Both ports of a message. REQUIRES: two devices.
std::array<int32_t, 2> message_ports(DeviceId from, DeviceId to, LinkKind link);
// The link of a device to the farthest of the others.
LinkKind farthest_link(const Cluster& cluster, DeviceId device,
                       const std::vector<DeviceId>& others);
// The ports of a collective: each member's links to those of its node and to the others, whichever
// of both there are.
std::vector<int32_t> group_ports(const Cluster& cluster, const std::vector<DeviceId>& members);

}  // namespace braid::inline sim

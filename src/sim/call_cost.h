// Prices of the pieces that one model call consists of under its strategy: passes of a micro-batch
// through a part of the model, messages between stages, gradient reduction, optimizer, rounds of
// generation; and the memory that each piece takes. Composes the primitives of pricing/. Pure;
// thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/mesh_shape.h"
#include "plan/problem.h"
#include "pricing/collective.h"
#include "pricing/compute.h"
#include "pricing/widths.h"
#include "program/expand.h"
#include "program/placement.h"
#include "sim/batching.h"

namespace braid::inline sim {

// What one device of a data-parallel rank has of a micro-batch.
struct MicroBatch {
  double tokens = 0;   // of all of them over cp
  double context = 0;  // tokens that one of them attends to, mean
  friend bool operator==(const MicroBatch&, const MicroBatch&) = default;
};

// Seconds that one micro-batch takes in one layer of each kind, recomputation included, in the
// embedding, and in head and loss over the vocabulary. Backward only where the call trains.
struct PassPrices {
  double tokens = 0;
  double half_exchange_s = 0;   // half an all-reduce of a layer's output over tensor-parallel ranks
  double whole_exchange_s = 0;  // all of it
  double parts_exchange_s = 0;  // its terms to who adds their parts, and the additions
  double context_exchange_s = 0;  // keys and values of a layer, once around context-parallel ranks
  double expert_exchange_s = 0;   // tokens of a layer to their experts, one way
  double dense_forward_s = 0, dense_backward_s = 0;
  double sparse_forward_s = 0, sparse_backward_s = 0;
  double embedding_forward_s = 0, embedding_backward_s = 0;
  double head_forward_s = 0, head_backward_s = 0;
};

// What the prices of a micro-batch depend on beside it, on devices of one kind whose places in the
// mesh are in the order of their nodes.
struct PassKey {
  const RoleModel* model = nullptr;
  std::string gpu;
  Precision precision = Precision::kBf16;
  Recompute recompute = Recompute::kNone;
  bool scalar_head = false, trains = false, sequence_sharded = false;
  int tp = 1, cp = 1, ep = 1, expert_tp = 1;
  int per_node = 1, in_domain = 1;
  double nic_gbps = 0;
  friend auto operator<=>(const PassKey&, const PassKey&) = default;
};

// Scheduling rounds of one replica that decode the same number of sequences, taken together.
struct RoundGroup {
  int64_t rounds = 0;
  int64_t decoding = 0;       // sequences, in each round
  double cached_tokens = 0;   // of the sequences that decoded, over all rounds
  double prefill_tokens = 0;  // over all rounds
  int64_t pages = 0;          // of cache, the most that one of them held
  int64_t agreements = 0;     // of the replica's ranks, after them
  int64_t drawing = 0;        // rounds in which sequences get a token
  double drawn = 0;           // tokens that they get, over all rounds

  // Agreements aside. REQUIRES: as many sequences decode as in those before.
  void add(const BatchRound& round);
};

// A strategy without what the ops of a call around its passes do not depend on: how its samples are
// cut into micro-batches, the order of their passes, and how an engine batches.
Strategy without_batches(Strategy strategy);

class CallCost {
 public:
  // Errors: a device that does not support the precision of the model.
  static Result<CallCost> make(const Program& program, CallId id, const PlanningProblem& problem,
                               const Calibration& calibration);
  // As above, for known models of the mesh's devices: one for each kind, in the order of
  // shape_of().kinds. The first, with the least memory, is the one that memory is counted for.
  static CallCost make(const Call& call, const CallPlan& plan, const PlanningProblem& problem,
                       std::vector<DeviceModel> kinds);
  // Of the same call on the same mesh under a strategy with the same without_batches().
  CallCost with(const Strategy& strategy) const;

  // The micro-batch of these sequences.
  MicroBatch micro_batch(const std::vector<PackedLength>& lengths) const;

  // Seconds of an op; of a pass by the prices of its micro-batch (an empty one takes none).
  // Reductions among copies hide behind what is left of `window_s` seconds of computation, and take
  // from it. Waiting is not part of it. Ops that only order others (loss, norm and agreement of an
  // update, zero) take no time of their own: their passes were fitted with them.
  double op_s(const Expansion& expansion, const Op& op, const PassPrices& prices,
              double* window_s = nullptr) const;

  // Seconds of a pass of one micro-batch through part `part` of pp * interleave, the collectives
  // inside of it and recomputation included.
  double forward_s(const MicroBatch& batch, int part) const {
    return forward_s(pass_prices(batch), part);
  }
  double backward_s(const MicroBatch& batch, int part) const {
    return backward_s(pass_prices(batch), part);
  }
  PassPrices pass_prices(const MicroBatch& batch) const;
  // None where the prices depend on more.
  std::optional<PassKey> pass_key() const;
  double forward_s(const PassPrices& prices, int part) const {
    return pass_s(prices, of_part(part), body_of(part), true);
  }
  double backward_s(const PassPrices& prices, int part) const {
    return pass_s(prices, of_part(part), body_of(part), false);
  }
  // Bytes of a micro-batch's activations between two stages, of one tensor-parallel rank.
  double stage_bytes(const MicroBatch& batch) const;
  // What ends an optimizer step on a stage: its reductions of gradients that end later than a last
  // backward pass of `window_s` seconds; the update; the way back of updated weights (ZeRO-1, -2).
  double exposed_reduce_s(int stage, double window_s) const;
  double optimizer_step_s(int stage) const;
  double gather_s(int stage) const;
  double step_host_s() const;                      // fixed time of an optimizer step
  double rounds_s(const BatchRound& round) const;  // of one replica
  double rounds_s(const RoundGroup& group) const;  // all of them
  // Of all ranks of an inference call at its end; of a replica's ranks between two rounds.
  double agreements_s(int stage = 0) const;
  // Of all ranks of a generation that sums so many bytes: counts of what is left, until it is
  // handed over (program/hand_over.h), and how far samples are.
  double tally_s(int64_t bytes) const;
  // An all-gather over ranks that share slices of weights (ZeRO-3), outside of passes.
  double gather_slices_s(double bytes) const;

  // Bytes on one device.
  double activation_bytes(const MicroBatch& batch, int part) const;  // kept for the backward pass
  double working_bytes(const MicroBatch& batch) const;               // of the layer being worked on
  double logit_bytes(const MicroBatch& batch) const;                 // of one chunk of the head
  double gathered_bytes(int stage) const;                            // ZeRO-3: blocks held whole
  double gradient_bytes(int stage) const;
  double optimizer_bytes(int stage) const;
  // Copies of the weights that kernels keep during the call; whether there are any.
  bool packs() const {
    const Efficiency& e = device_.efficiency;
    return (trains_ ? e.mem_packed_train_share : e.mem_packed_share) > 0;
  }
  double packed_bytes(size_t mesh_index, bool several_passes) const;
  double weight_bytes(size_t mesh_index) const;
  double cache_bytes_per_token() const;  // KV cache of one token on one device
  double prefill_bytes(double tokens) const;

  double host_copy_seconds(double bytes) const {
    return slowest([&](const DeviceModel& device) { return host_copy_s(bytes, device); });
  }
  const DeviceModel& device() const { return device_; }
  const Strategy& strategy() const { return strategy_; }
  const RoleModel& model() const { return *model_; }
  int parts() const { return strategy_.pp * strategy_.interleave; }
  // The first part whose passes take as long as those of this one, whatever the micro-batch.
  int part_like(int part) const { return part_like_[part]; }
  // The bodies of a stage and the ops beside its passes: of an optimizer step without samples, of
  // the end of inference, of a round of generation and an agreement.
  const Expansion& stage(int stage) const { return (*stages_)[stage]; }

 private:
  // The largest price on any kind of the mesh's devices.
  template <typename Price>
  double slowest(const Price& price) const {
    double most = price(device_);
    for (const DeviceModel& other : others_) most = std::max(most, price(other));
    return most;
  }
  PassPrices prices_on(const DeviceModel& device, const MicroBatch& batch) const;
  double rounds_on_s(const DeviceModel& device, const RoundGroup& group) const;
  double collective_s(CollectiveOp op, double bytes, const OpGroup& over) const;
  CollectiveGroup group(int members, int stride) const;
  int apart(int members, int stride) const;
  LayerPass layer_pass(const MicroBatch& batch, LayerKind kind) const;
  const InsideOp* exchange_inside(GroupKind over) const;
  double half_exchange_s(double tokens) const;
  double whole_exchange_s(double tokens) const;
  double parts_exchange_s(double tokens) const;
  double context_exchange_s(double tokens) const;
  double expert_exchange_s(double tokens) const;
  double pass_s(const PassPrices& prices, const Expansion& e, const OpBody& body,
                bool forward) const;
  double compute_s(const PassPrices& prices, const OpBody& body, bool forward) const;
  double data_s(const Expansion& e, const std::vector<InsideOp>& inside) const;
  double with_gathers(double compute_s, double exchange_s) const;
  double reduction_s(const Expansion& e, const Op& op, double* window_s) const;
  double agreement_s(const Expansion& e, const Op& op) const;
  static bool lists_messages(const DeviceModel& device);
  double hand_on_s(const DeviceModel& device, double tokens) const;
  double draw_s(const DeviceModel& device, double rows) const;
  double update_s(const Expansion& e, const Op& op) const;
  double return_s(const Expansion& e, const Op& op) const;
  double held_state(int stage, OpKind kind, TensorState state) const;
  const Expansion& of_part(int part) const { return (*stages_)[part % strategy_.pp]; }
  const OpBody& body_of(int part) const { return of_part(part).bodies[part / strategy_.pp]; }
  const OpBody& any_body() const { return stages_->front().bodies.front(); }

  const RoleModel* model_ = nullptr;
  Strategy strategy_;
  DeviceModel device_;
  std::vector<DeviceModel> others_;  // kinds of the mesh beside device_
  GpuSpec links_;                    // MeshShape::links
  NumberWidths widths_;
  std::shared_ptr<const std::vector<Expansion>> stages_;
  std::vector<int> part_like_;  // by part
  std::vector<TensorKind> kinds_;
  ParamLayout layout_;
  double trained_share_ = 1;
  bool scalar_head_ = false;
  bool trains_ = false;
  int per_node_ = 1;
  std::vector<int> nodes_;  // by place in the mesh, where its devices are not in ascending order
  double nic_gbps_ = 0;
  double factor_ = 1;  // of passes inside an RL step, all draws of it
  double prompt_tokens_ = 0;
};

}  // namespace braid::inline sim

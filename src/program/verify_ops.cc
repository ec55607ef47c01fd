#include "program/verify_ops.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "program/minibatch_parts.h"

namespace braid::inline program {
namespace {

Status wrong(const Expansion& e, size_t op, const std::string& what) {
  return invalid_input(
      cat("rank ", e.rank, ", op ", op, " (", op_kind_name(e.ops[op].kind), "): ", what));
}

Status left_out(const Expansion& e, int32_t minibatch, const std::string& what) {
  return invalid_input(cat("rank ", e.rank, ", mini-batch ", minibatch, ": ", what));
}

size_t index_in_mesh(const CallFrame& frame, DeviceId rank) {
  const auto& devices = frame.where->mesh.devices;
  return std::find(devices.begin(), devices.end(), rank) - devices.begin();
}

bool is_collective(const Op& op) { return op.group >= 0; }

// OpMessages of each ordered pair and channel: cut, mini-batch, micro-batch, bytes.
using OpMessages = std::vector<std::tuple<int32_t, int32_t, int32_t, double>>;
using OpChannels = std::map<std::tuple<DeviceId, DeviceId, Channel>, OpMessages>;

Status verify_messages(const std::vector<Expansion>& ranks) {
  OpChannels sent, received;
  for (const Expansion& e : ranks)
    for (const Op& op : e.ops) {
      if (op.channel == Channel::kNone) continue;
      const bool sends = op.kind == OpKind::kSend;
      (sends ? sent : received)[{sends ? e.rank : op.peer, sends ? op.peer : e.rank, op.channel}]
          .push_back({op.cut, op.minibatch, op.micro_batch, op.bytes});
    }
  for (const auto& [channel, messages] : received) sent.try_emplace(channel);
  for (const auto& [channel, messages] : sent)
    if (received[channel] != messages)
      return invalid_input(cat("messages from rank ", std::get<0>(channel), " to rank ",
                               std::get<1>(channel), " are not received as they are sent"));
  return ok_status();
}

// What each rank lists of each group, and what its passes do with the others of a group.
Status verify_groups(const std::vector<Expansion>& ranks) {
  using Key = std::pair<GroupKind, std::vector<DeviceId>>;
  using Listed = std::vector<std::tuple<OpKind, int32_t, double>>;
  std::map<Key, std::map<DeviceId, Listed>> lists;
  const auto list_inside = [&](const Expansion& e, const Op& op) {
    const OpBody& body = e.bodies[op.body];
    for (const InsideOp& inside : op.kind == OpKind::kForward ? body.forward : body.backward)
      lists[{e.groups[inside.group].kind, e.groups[inside.group].members}][e.rank].push_back(
          {inside.kind, op.minibatch, 0});
  };
  for (const Expansion& e : ranks)
    for (const Op& op : e.ops) {
      if (op.kind == OpKind::kForward || op.kind == OpKind::kBackward) list_inside(e, op);
      if (!is_collective(op)) continue;
      const OpGroup& group = e.groups[op.group];
      const bool each_its_part = op.kind == OpKind::kAllGather ||
                                 op.kind == OpKind::kReduceScatter || op.kind == OpKind::kSample;
      lists[{group.kind, group.members}][e.rank].push_back(
          {op.kind, op.minibatch, each_its_part ? 0 : op.bytes});
    }
  for (auto& [key, by_rank] : lists)
    for (const DeviceId member : key.second)
      if (by_rank[member] != by_rank.begin()->second)
        return invalid_input(cat("rank ", member, " does not list the same collectives of its ",
                                 group_kind_name(key.first), " group as rank ",
                                 by_rank.begin()->first));
  return ok_status();
}

// The passes of one rank, and what they hold.
class Passes {
 public:
  Passes(const Expansion& e, bool trains, const Deal& deal) : e_(e), trains_(trains), deal_(deal) {}

  Status verify() {
    for (size_t i = 0; i < e_.ops.size(); ++i) {
      const OpKind kind = e_.ops[i].kind;
      if (kind == OpKind::kForward) BRAID_TRY(forward(i));
      if (kind == OpKind::kLoss) BRAID_TRY(loss(i));
      if (kind == OpKind::kBackward) BRAID_TRY(backward(i));
    }
    return all_there();
  }

 private:
  using Place = std::tuple<int32_t, int32_t, int32_t>;  // mini-batch, micro-batch, body
  Place place(const Op& op) const { return {op.minibatch, op.micro_batch, op.body}; }

  Status forward(size_t i) {
    const Op& op = e_.ops[i];
    if (!forwards_.insert(place(op)).second) return wrong(e_, i, "passes again");
    if (op.holds != (trains_ ? 1 : 0)) return wrong(e_, i, "does not keep its activations");
    return ok_status();
  }
  Status loss(size_t i) {
    if (!losses_.insert(place(e_.ops[i])).second) return wrong(e_, i, "occurs again");
    if (forwards_.count(place(e_.ops[i])) == 0) return wrong(e_, i, "before its forward");
    return ok_status();
  }
  Status backward(size_t i) {
    const Op& op = e_.ops[i];
    if (forwards_.count(place(op)) == 0) return wrong(e_, i, "before its forward");
    if (!backwards_.insert(place(op)).second) return wrong(e_, i, "passes again");
    if (op.holds != -1) return wrong(e_, i, "does not free its activations");
    if (e_.bodies[op.body].head && losses_.count(place(op)) == 0)
      return wrong(e_, i, "without the loss");
    return ok_status();
  }

  Status all_there() const {
    for (size_t m = 0; m < deal_.minibatches.size(); ++m) {
      const auto& batches = deal_.minibatches[m].micro_batches[e_.at.dp_rank];
      for (size_t k = 0; k < batches.size(); ++k)
        for (size_t body = 0; body < e_.bodies.size(); ++body) {
          const Place here{static_cast<int32_t>(m), static_cast<int32_t>(k),
                           static_cast<int32_t>(body)};
          const std::string what =
              cat("micro-batch ", k, " does not pass part ", e_.bodies[body].part, " of the model");
          if (forwards_.count(here) == 0)
            return left_out(e_, static_cast<int32_t>(m), what + " forward");
          if (trains_ && backwards_.count(here) == 0)
            return left_out(e_, static_cast<int32_t>(m), what + " backward");
        }
    }
    return ok_status();
  }

  const Expansion& e_;
  const bool trains_;
  const Deal& deal_;
  std::set<Place> forwards_, losses_, backwards_;
};

// Whether passes of a body use a tensor kind in some of these layers.
bool uses(const OpBody& body, const TensorKind& kind, const Interval& layers) {
  if (kind.layer_begin == kind.layer_end)
    return (kind.first && body.embedding) || (kind.last && body.head);
  return std::max(body.layers.begin, layers.begin) < std::min(body.layers.end, layers.end);
}

// Among which ranks of equal parameters the passes of a body do this with those of a kind: routed
// experts have groups of their own where their grid is another. Null: they do not.
const OpGroup* inside_over(const Expansion& e, const std::vector<InsideOp>& inside, OpKind op,
                           const TensorKind& kind) {
  const auto of_experts = [](const OpGroup& group) {
    return among_copies(group.kind) && group.kind >= GroupKind::kExpertData;
  };
  const bool own_grid = std::any_of(e.groups.begin(), e.groups.end(), of_experts);
  for (const InsideOp& each : inside) {
    const OpGroup& group = e.groups[each.group];
    if (each.kind == op && among_copies(group.kind) &&
        (!own_grid || kind.routed == of_experts(group)))
      return &group;
  }
  return nullptr;
}

// Where a rank keeps slices of its weights (ZeRO-3), every pass of a body gathers what it uses.
Status verify_gathers(const CallFrame& frame, const Expansion& e) {
  const ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
  ParamLayout whole = layout;
  whole.sharded = false;
  const GridPosition at = grid_position(layout_grid(layout), index_in_mesh(frame, e.rank));
  for (const OpBody& body : e.bodies)
    for (const TensorKind& kind : frame.model->kinds) {
      if (!uses(body, kind, {kind.layer_begin, kind.layer_end})) continue;
      if (held_elements(kind, layout, at) == held_elements(kind, whole, at)) continue;
      for (const auto* inside : {&body.forward, &body.backward})
        if ((inside == &body.forward || body.trains) &&
            inside_over(e, *inside, OpKind::kAllGather, kind) == nullptr)
          return invalid_input(cat("rank ", e.rank, ": passes of part ", body.part,
                                   " of the model do not gather the weights of ", kind.name));
    }
  return ok_status();
}

// The frame of each optimizer step: zero, passes, norm, agreement, update.
Status verify_step_order(const Expansion& e, int32_t minibatch) {
  int stage = 0;  // ops of the frame so far
  MinibatchPart part = MinibatchPart::kPasses;
  static constexpr OpKind kFrame[] = {OpKind::kZero, OpKind::kNorm, OpKind::kAgree,
                                      OpKind::kUpdate};
  for (size_t i = 0; i < e.ops.size(); ++i) {
    const Op& op = e.ops[i];
    if (op.minibatch != minibatch) continue;
    const bool frame = std::find(std::begin(kFrame), std::end(kFrame), op.kind) != std::end(kFrame);
    if (frame && (stage == 4 || op.kind != kFrame[stage]))
      return wrong(e, i, "is out of its place");
    if (frame) ++stage;
    if (part_of_minibatch(e, op) < part || stage == 0) return wrong(e, i, "is out of its place");
    part = part_of_minibatch(e, op);
    const bool after_update = stage == 4 && op.kind != OpKind::kUpdate;
    if (op.version != minibatch + (after_update ? 1 : 0))
      return wrong(e, i, "does not read the weights of the last update");
  }
  if (stage < 4) return left_out(e, minibatch, cat("no ", op_kind_name(kFrame[stage])));
  return ok_status();
}

// Which ranks' gradients are in sampled elements of every tensor: first and last of each rank's
// share of the update.
class GradientSums {
 public:
  using Element = std::tuple<int32_t, int64_t, int64_t>;  // kind, layer, element

  GradientSums(const CallFrame& frame, const std::vector<Expansion>& ranks, int32_t minibatch)
      : frame_(frame), ranks_(ranks), minibatch_(minibatch), whole_(layout(frame)) {
    for (size_t r = 0; r < ranks.size(); ++r) index_[ranks[r].rank] = r;
  }

  Status verify() {
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const Op& op : ranks_[r].ops) {
        if (op.kind != OpKind::kUpdate || op.minibatch != minibatch_) continue;
        for (const TensorSlice& slice : ranks_[r].tensors[op.what]) {
          if (slice.state != TensorState::kMain || slice.elements.size() <= 0) continue;
          for (const int64_t element : {slice.elements.begin, slice.elements.end - 1})
            BRAID_TRY(verify_element(r, {slice.item, slice.layers.begin, element}));
        }
      }
    return ok_status();
  }

 private:
  using Ranks = std::set<size_t>;

  static ParamLayout layout(const CallFrame& frame) {
    ParamLayout whole = param_layout(frame.where->mesh, frame.where->strategy);
    whole.sharded = false;
    return whole;
  }

  bool holds(size_t rank, const Element& element) const {
    const auto& [item, layer, at] = element;
    const TensorKind& kind = frame_.model->kinds[item];
    const GridPosition position = grid_position(layout_grid(whole_), rank);
    const Interval elements = held_elements(kind, whole_, position);
    if (at < elements.begin || at >= elements.end) return false;
    for (const Interval& run : held_layers(kind, whole_, frame_.model->layers, position.stage))
      if (run.begin <= layer && layer < run.end) return true;
    return false;
  }

  static bool names(const Expansion& e, const Op& op, const Element& element) {
    const auto& [item, layer, at] = element;
    for (const TensorSlice& slice : e.tensors[op.what])
      if (slice.item == item && slice.layers.begin <= layer && layer < slice.layers.end &&
          slice.elements.begin <= at && at < slice.elements.end)
        return true;
    return false;
  }

  // The groups over which a rank's part of an element is summed, in the order of its list.
  std::vector<const OpGroup*> sums(size_t rank, const Element& element) const {
    const Expansion& e = ranks_[rank];
    const auto& [item, layer, at] = element;
    const TensorKind& kind = frame_.model->kinds[item];
    std::vector<const OpGroup*> out;
    for (const OpBody& body : e.bodies)
      if (uses(body, kind, {layer, layer + 1}))
        if (const OpGroup* group = inside_over(e, body.backward, OpKind::kReduceScatter, kind))
          out.push_back(group);
    for (const Op& op : e.ops)
      if (op.minibatch == minibatch_ && op.what >= 0 && op.group >= 0 &&
          (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter) &&
          names(e, op, element))
        out.push_back(&e.groups[op.group]);
    return out;
  }

  // Ranks whose parts are in the sum that a rank updates with: each of its sums brings the members'
  // own and what their sums before it brought.
  Ranks joined(size_t rank, const Element& element, size_t sums_of_rank) const {
    Ranks out = {rank};
    const auto groups = sums(rank, element);
    for (size_t i = 0; i < std::min(sums_of_rank, groups.size()); ++i)
      for (const DeviceId member : groups[i]->members) {
        const size_t other = index_.at(member);
        if (!holds(other, element)) continue;
        const Ranks theirs = other == rank ? Ranks{} : joined(other, element, i);
        out.insert(theirs.begin(), theirs.end());
        out.insert(other);
      }
    return out;
  }

  Status verify_element(size_t rank, const Element& element) const {
    const TensorKind& kind = frame_.model->kinds[std::get<0>(element)];
    const bool parts =
        frame_.where->strategy.sequence_parallel || kind.partial || frame_.model->trained_share < 1;
    const bool alike = kind.units == 1 && !parts;
    Ranks expected;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (holds(r, element) && (!alike || ranks_[r].at.tp_rank == ranks_[rank].at.tp_rank))
        expected.insert(r);
    const Ranks summed = joined(rank, element, SIZE_MAX);
    if (summed == expected) return ok_status();
    return left_out(ranks_[rank], minibatch_,
                    cat("gradients of ", kind.name, " are summed over ", summed.size(),
                        " ranks where ", expected.size(), " compute a part of them"));
  }

  const CallFrame& frame_;
  const std::vector<Expansion>& ranks_;
  const int32_t minibatch_;
  const ParamLayout whole_;
  std::map<DeviceId, size_t> index_;
};

// Weights of each tensor kind in an entry of the expansion's tensors.
void add_weights(const Expansion& e, int32_t what, std::vector<int64_t>* of_kind) {
  for (const TensorSlice& slice : e.tensors[what])
    if (slice.state == TensorState::kWeights)
      (*of_kind)[slice.item] += slice.elements.size() * slice.layers.size();
}

// What ranks update in parts reaches all that hold it (ZeRO-3 leaves it in parts).
Status verify_return(const CallFrame& frame, const Expansion& e, int32_t minibatch) {
  const ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
  const GridPosition at = grid_position(layout_grid(layout), index_in_mesh(frame, e.rank));
  const size_t kinds = frame.model->kinds.size();
  std::vector<int64_t> updated(kinds), gathered(kinds);
  for (const Op& op : e.ops) {
    if (op.minibatch != minibatch) continue;
    if (op.kind == OpKind::kUpdate) add_weights(e, op.what, &updated);
    if (op.kind == OpKind::kAllGather) add_weights(e, op.what, &gathered);
  }
  for (size_t i = 0; i < kinds; ++i) {
    const TensorKind& kind = frame.model->kinds[i];
    int64_t held = 0;
    for (const Interval& run : held_layers(kind, layout, frame.model->layers, at.stage))
      held += run.size() * held_elements(kind, layout, at).size();
    if (std::max(updated[i], gathered[i]) < held)
      return left_out(e, minibatch,
                      cat("updated weights of ", kind.name, " do not arrive from other ranks"));
  }
  return ok_status();
}

}  // namespace

Status verify_ops(const CallFrame& frame, const std::vector<Expansion>& ranks, const Deal& deal) {
  BRAID_CHECK(ranks.size() == frame.where->mesh.devices.size(), "the lists of all ranks");
  const bool trains = frame.kind == CallKind::kTrainStep;
  for (const Expansion& e : ranks) BRAID_TRY(Passes(e, trains, deal).verify());
  for (const Expansion& e : ranks) BRAID_TRY(verify_gathers(frame, e));
  BRAID_TRY(verify_messages(ranks));
  BRAID_TRY(verify_groups(ranks));
  for (size_t m = 0; trains && m < deal.minibatches.size(); ++m) {
    const auto minibatch = static_cast<int32_t>(m);
    for (const Expansion& e : ranks) BRAID_TRY(verify_step_order(e, minibatch));
    for (const Expansion& e : ranks) BRAID_TRY(verify_return(frame, e, minibatch));
    BRAID_TRY(GradientSums(frame, ranks, minibatch).verify());
  }
  return ok_status();
}

DealShape shape_of(const Deal& deal) {
  DealShape out;
  for (const MiniBatch& minibatch : deal.minibatches) {
    out.emplace_back();
    for (const auto& micro_batches : minibatch.micro_batches)
      out.back().push_back(static_cast<int32_t>(micro_batches.size()));
  }
  return out;
}

Result<Expansion> verified_ops(const CallFrame& frame, DeviceId rank, const Deal& deal,
                               VerifiedShapes* verified) {
  DealShape shape = shape_of(deal);
  if (verified->count(shape) > 0) return expand(frame, rank, deal);
  std::vector<Expansion> ranks;
  size_t own = 0;
  for (const DeviceId device : frame.where->mesh.devices) {
    if (device == rank) own = ranks.size();
    ranks.push_back(expand(frame, device, deal));
  }
  BRAID_TRY(verify_ops(frame, ranks, deal));
  verified->insert(std::move(shape));
  return std::move(ranks[own]);
}

Status verify_round(const CallFrame& frame, const std::vector<Expansion>& ranks,
                    const RoundWork& round) {
  const Strategy& s = frame.where->strategy;
  BRAID_TRY(verify_messages(ranks));
  BRAID_TRY(verify_groups(ranks));
  for (const Expansion& e : ranks) {
    const auto count = [&](OpKind kind) {
      return std::count_if(e.ops.begin(), e.ops.end(),
                           [&](const Op& op) { return op.kind == kind; });
    };
    const auto expect = [&](OpKind kind, int64_t number) {
      if (count(kind) == number) return ok_status();
      return left_out(e, 0,
                      cat(count(kind), " times ", op_kind_name(kind), " in a round, not ", number));
    };
    BRAID_TRY(expect(OpKind::kForward, std::max<int64_t>(1, std::ssize(round.batches))));
    BRAID_TRY(expect(OpKind::kSample, e.at.stage == s.pp - 1 ? 1 : 0));
    BRAID_TRY(expect(OpKind::kBroadcast, s.pp > 1 ? 1 : 0));
    BRAID_TRY(expect(OpKind::kAgree, round.agrees && s.tp * s.pp > 1 ? 1 : 0));
  }
  return ok_status();
}

}  // namespace braid::inline program

#include "program/verify_sums.h"

#include <algorithm>
#include <unordered_map>

#include "base/text.h"

namespace braid::inline program {
namespace {

// An element of a tensor kind, in one layer.
struct Element {
  int32_t item = 0;
  int64_t layer = 0, at = 0;
};

class GradientSums {
 public:
  GradientSums(const CallFrame& frame, const Expansion& own, int32_t minibatch)
      : frame_(frame), own_(own), minibatch_(minibatch), whole_(layout(frame)) {
    const auto& devices = frame.where->mesh.devices;
    for (size_t i = 0; i < devices.size(); ++i) index_[devices[i]] = i;
  }

  Status verify() {
    for (size_t i = 0; i < own_.ops.size(); ++i) {
      const Op& op = own_.ops[i];
      if (op.kind != OpKind::kUpdate || op.minibatch != minibatch_) continue;
      for (const TensorSlice& slice : own_.tensors[op.what]) {
        if (slice.state != TensorState::kMain || slice.elements.size() <= 0) continue;
        for (const int64_t at : {slice.elements.begin, slice.elements.end - 1})
          BRAID_TRY(verify_element(i, {slice.item, slice.layers.begin, at}));
      }
    }
    return ok_status();
  }

 private:
  static ParamLayout layout(const CallFrame& frame) {
    ParamLayout whole = param_layout(frame.where->mesh, frame.where->strategy);
    whole.sharded = false;
    return whole;
  }

  // [mesh index]
  std::vector<bool> holders(const Element& element) const {
    const TensorKind& kind = frame_.model->kinds[element.item];
    std::vector<bool> stages(whole_.pp);
    for (int stage = 0; stage < whole_.pp; ++stage)
      for (const Interval& run : held_layers(kind, whole_, frame_.model->layers, stage))
        if (run.begin <= element.layer && element.layer < run.end) stages[stage] = true;
    const Strategy grid = layout_grid(whole_);
    std::vector<bool> out(frame_.where->mesh.devices.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const GridPosition at = grid_position(grid, i);
      if (!stages[at.stage]) continue;
      const Interval elements = held_elements(kind, whole_, at);
      out[i] = elements.begin <= element.at && element.at < elements.end;
    }
    return out;
  }

  bool names(const Op& op, const Element& element) const {
    for (const TensorSlice& slice : own_.tensors[op.what])
      if (slice.item == element.item && slice.layers.begin <= element.layer &&
          element.layer < slice.layers.end && slice.elements.begin <= element.at &&
          element.at < slice.elements.end)
        return true;
    return false;
  }

  // The groups over which the rank's part of an element is summed, in the order of its list.
  std::vector<const OpGroup*> sums(const Element& element) const {
    const TensorKind& kind = frame_.model->kinds[element.item];
    std::vector<const OpGroup*> out;
    for (const OpBody& body : own_.bodies)
      if (uses(body, kind, {element.layer, element.layer + 1}))
        if (const OpGroup* group = inside_over(own_, body.backward, OpKind::kReduceScatter, kind))
          out.push_back(group);
    for (const Op& op : own_.ops)
      if (op.minibatch == minibatch_ && op.what >= 0 && op.group >= 0 &&
          (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter) &&
          names(op, element))
        out.push_back(&own_.groups[op.group]);
    return out;
  }

  // Ranks whose parts are in the sum that this rank updates with: the last sum brings those of the
  // members, each of which has them from the sums before it, over its own groups of those kinds.
  std::vector<bool> joined(const std::vector<bool>& holds,
                           const std::vector<const OpGroup*>& groups) const {
    std::vector<bool> out(holds.size());
    std::vector<size_t> ranks = {index_.at(own_.rank)};
    out[ranks.front()] = true;
    for (auto group = groups.rbegin(); group != groups.rend(); ++group)
      for (size_t i = 0, count = ranks.size(); i < count; ++i) {
        const bool self = frame_.where->mesh.devices[ranks[i]] == own_.rank;
        const OpGroup members = self ? **group
                                     : group_of(frame_, (*group)->kind,
                                                grid_position(frame_.where->strategy, ranks[i]));
        for (const DeviceId member : members.members) {
          const auto found = index_.find(member);
          if (found == index_.end() || !holds[found->second] || out[found->second]) continue;
          out[found->second] = true;
          ranks.push_back(found->second);
        }
      }
    return out;
  }

  Status verify_element(size_t update, const Element& element) const {
    const TensorKind& kind = frame_.model->kinds[element.item];
    const bool alike = kind.units == 1 &&
                       !is_partial(*frame_.model, kind, frame_.where->strategy.sequence_parallel);
    const std::vector<bool> holds = holders(element);
    std::vector<bool> expected = holds;
    for (size_t i = 0; alike && i < expected.size(); ++i)
      if (grid_position(frame_.where->strategy, i).tp_rank != own_.at.tp_rank) expected[i] = false;
    const std::vector<bool> summed = joined(holds, sums(element));
    if (summed == expected) return ok_status();
    const auto count = [](const std::vector<bool>& ranks) {
      return std::count(ranks.begin(), ranks.end(), true);
    };
    return invalid_input(cat("rank ", own_.rank, ", op ", update, " (",
                             op_kind_name(own_.ops[update].kind), "): gradients of ", kind.name,
                             " are summed over ", count(summed), " ranks where ", count(expected),
                             " compute a part of them"));
  }

  const CallFrame& frame_;
  const Expansion& own_;
  const int32_t minibatch_;
  const ParamLayout whole_;
  std::unordered_map<DeviceId, size_t> index_;  // in the mesh
};

}  // namespace

bool uses(const OpBody& body, const TensorKind& kind, const Interval& layers) {
  if (kind.layer_begin == kind.layer_end)
    return (kind.first && body.embedding) || (kind.last && body.head);
  return std::max(body.layers.begin, layers.begin) < std::min(body.layers.end, layers.end);
}

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

Status verify_sums(const CallFrame& frame, const Expansion& own, int32_t minibatch) {
  return GradientSums(frame, own, minibatch).verify();
}

}  // namespace braid::inline program

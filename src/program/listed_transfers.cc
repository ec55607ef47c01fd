#include "program/listed_transfers.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/status.h"
#include "models/family.h"
#include "models/flat_layout.h"
#include "program/listed_messages.h"
#include "program/tensor_exchanges.h"

namespace braid::inline program {
namespace {

using Place = CallTensors::Place;
using Tensor = CallTensors::Tensor;

constexpr int64_t kGradientBytes = 4;  // f32, whatever the weights are

// Over which ranks gradients of a tensor are summed besides those that hold it alike; with the unit
// of the model the number of its bucket (nn/model_parts.h).
enum class Partial : int64_t { kNone, kTensor, kShared, kEnds, kCount };
constexpr auto kPartials = static_cast<int64_t>(Partial::kCount);

constexpr const char* kAdapterEnd = ".lora_";

// The module of a tensor: two halves of an adapter have one.
std::string module_of(const std::string& name) {
  const size_t adapter = name.find(kAdapterEnd);
  return name.substr(0, adapter != std::string::npos ? adapter : name.rfind('.'));
}

std::string without(const std::string& prefix, const std::string& name) {
  return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
}

// Tensors of a map by name; those of a layer without the layer's prefix.
using Named = std::map<std::string, Tensor>;
Named named_tensors(const TensorMap& map, bool trained, bool adapter) {
  Named out;
  for (const MappedKind& mapped : map.kinds)
    for (const TensorPiece& piece : mapped.pieces) {
      const TensorKind& kind = mapped.kind;
      const bool layer = kind.layer_end > kind.layer_begin;
      Tensor& tensor = out[piece.name];
      tensor.place = layer ? Place::kLayer : kind.first ? Place::kFirst : Place::kLast;
      tensor.trained = trained, tensor.adapter = adapter;
      tensor.parts.push_back(
          {kind, piece.per_unit * (piece.by_columns ? piece.rows : piece.columns)});
    }
  return out;
}

// Names in the order of the files, those of the first layer for all.
std::vector<std::string> names_in_order(const ModelSpec& spec) {
  const TensorMap map = tensor_map(spec);
  const std::string first = map.layer_prefix_begin + "0" + map.layer_prefix_end;
  std::vector<std::string> out;
  for (const TensorSpec& tensor : model_tensors(spec, 0, std::min<int64_t>(1, spec.layers)))
    out.push_back(without(first, tensor.name));
  for (const TensorSpec& tensor :
       model_tensors(spec, std::max<int64_t>(1, spec.layers - 1), spec.layers)) {
    const bool known = std::find(out.begin(), out.end(), tensor.name) != out.end();
    const bool of_layer = tensor.name.rfind(map.layer_prefix_begin, 0) == 0;
    if (!known && !of_layer) out.push_back(tensor.name);
  }
  return out;
}

// What ranks hold of a model's tensors, and how these travel.
class HeldTensors {
 public:
  // REQUIRES: list() comes next.
  HeldTensors(const CallFrame& frame, const CallTensors& tensors, const Expansion& ops)
      : s_(frame.where->strategy),
        model_(*frame.model),
        ops_(ops),
        whole_(whole_layout(frame)),
        at_{copy_rank(s_, ops.at), ops.at.tp_rank, ops.at.stage},
        ranks_(shards(s_) ? zero_ranks(s_) : dense_copies(s_)),
        each_backward_(shards(s_) && s_.zero_stage >= 2),
        tied_(tensors.tied),
        cuts_rows_(tensors.cuts_rows) {}

  // Buckets of gradients, all or those that passes of a body add to.
  std::vector<FlatBucket> gradients() const { return lay_flat(trained_, ranks_).buckets; }
  std::vector<FlatBucket> gradients_of(const OpBody& body) const {
    std::vector<FlatBucket> out = gradients();
    std::erase_if(
        out, [&](const FlatBucket& bucket) { return !uses_unit(body, bucket.number / kPartials); });
    return out;
  }

  // Elements of trained tensors whose gradients are summed over certain ranks: of whole gradients,
  // or of this rank's slices of them.
  int64_t partial_elements(const std::vector<Partial>& kinds) const {
    const auto wanted = [&](int64_t number) {
      return std::find(kinds.begin(), kinds.end(), static_cast<Partial>(number % kPartials)) !=
             kinds.end();
    };
    int64_t sum = 0;
    if (!each_backward_) {
      for (size_t i = 0; i < trained_.size(); ++i)
        if (wanted(numbers_[i])) sum += trained_[i].elements;
      return sum;
    }
    const int64_t index = at_.dp_rank % ranks_;
    for (const FlatBucket& bucket : gradients()) {
      const int64_t slice = bucket.padded / ranks_;
      if (wanted(bucket.number))
        sum += std::clamp<int64_t>(bucket.elements - index * slice, 0, slice);
    }
    return sum;
  }

  // Buckets of weights that a pass of a body brings: of each unit those that are trained, then the
  // others. The head comes after the layers, and before them in a backward; a tied one is the
  // embedding's unit.
  std::vector<FlatBucket> brought(const OpBody& body, bool forward) const {
    std::vector<int64_t> units;
    if (forward && body.embedding) units.push_back(0);
    if (body.head) units.push_back(last_unit());
    if (body.head && tied_) units.push_back(0);
    const std::vector<LayerFlow> flows = layer_flows(body, trained_parts(model_));
    for (size_t i = 0; i < flows.size(); ++i)
      if (forward || flows[i].output) units.push_back(first_unit(body) + static_cast<int64_t>(i));
    return brought(units);
  }
  // Of units of the model; those of a layer, or of its ends.
  std::vector<FlatBucket> brought(const std::vector<int64_t>& units) const {
    std::vector<FlatBucket> out;
    for (const int64_t unit : units) {
      for (const FlatBucket& bucket : gradients())
        if (bucket.number / kPartials == unit) out.push_back(bucket);
      for (const FlatBucket& bucket : lay_flat(frozen_, ranks_).buckets)
        if (bucket.number == unit) out.push_back(bucket);
    }
    return out;
  }
  std::vector<int64_t> units_of_layer(int64_t layer) const {
    if (layer == kEndsOfModel) return {0, last_unit()};
    for (const OpBody& body : ops_.bodies)
      if (body.layers.begin <= layer && layer < body.layers.end)
        return {first_unit(body) + layer - body.layers.begin};
    return {};
  }

  int64_t ranks() const { return ranks_; }

  // Weights, then adapters; of a tied embedding the last stage has a copy behind the final norm.
  void list(const CallTensors& tensors) {
    const bool first = ops_.bodies.front().embedding, last = ops_.bodies.back().head;
    const Tensor* embedding = tensors.tied ? &tensors.tensors.front() : nullptr;
    for (const bool adapter : {false, true}) {
      const auto each = [&](Place place, int64_t unit) {
        for (const Tensor& tensor : tensors.tensors)
          if (tensor.place == place && tensor.adapter == adapter)
            add(tensor, unit, &tensor == embedding && first != last);
      };
      if (first) each(Place::kFirst, 0);
      for (int64_t unit = 1; unit < last_unit(); ++unit) each(Place::kLayer, unit);
      if (last) each(Place::kLast, last_unit());
      if (!adapter && last && !first && embedding != nullptr) add(*embedding, last_unit(), true);
    }
  }

 private:
  static bool shards(const Strategy& s) { return s.zero_stage > 0 && zero_ranks(s) > 1; }
  static ParamLayout whole_layout(const CallFrame& frame) {
    ParamLayout layout = param_layout(frame.where->mesh, frame.where->strategy);
    layout.sharded = false;
    return layout;
  }
  int64_t last_unit() const {
    int64_t layers = 0;
    for (const OpBody& body : ops_.bodies) layers += body.layers.size();
    return layers + 1;
  }
  int64_t first_unit(const OpBody& body) const {
    int64_t unit = 1;
    for (const OpBody& other : ops_.bodies) {
      if (other.part == body.part) return unit;
      unit += other.layers.size();
    }
    return unit;
  }
  bool uses_unit(const OpBody& body, int64_t unit) const {
    if (unit == 0) return body.embedding;
    if (unit == last_unit()) return body.head;
    const int64_t first = first_unit(body);
    return unit >= first && unit < first + body.layers.size();
  }

  int64_t elements_of(const Tensor& tensor) const {
    int64_t sum = 0;
    for (const CallTensors::Part& part : tensor.parts) {
      BRAID_CHECK(!part.kind.routed, "routed experts are not executed");
      const int64_t of_unit = part.kind.elements / part.kind.units;
      sum += held_elements(part.kind, whole_, at_).size() / of_unit * part.per_unit;
    }
    return sum;
  }

  Partial partial_of(const Tensor& tensor, bool ends) const {
    const TensorKind& kind = tensor.parts.front().kind;
    if (ends) return Partial::kEnds;
    if (s_.tp == 1) return Partial::kNone;
    const bool keys = kind.name.rfind("key_value", 0) == 0;
    if (keys && kind.units < s_.tp) return Partial::kShared;
    const bool cuts_rows = cuts_rows_ && !tensor.adapter;
    return kind.units == 1 && (kind.partial || (cuts_rows && is_partial(model_, kind, true)))
               ? Partial::kTensor
               : Partial::kNone;
  }

  void add(const Tensor& tensor, int64_t unit, bool ends) {
    const int64_t elements = elements_of(tensor);
    if (!tensor.trained) {
      frozen_.push_back({elements, unit});
      return;
    }
    numbers_.push_back(unit * kPartials + static_cast<int64_t>(partial_of(tensor, ends)));
    trained_.push_back({elements, each_backward_ ? numbers_.back() : 0});
  }

  const Strategy& s_;
  const ModelShape& model_;
  const Expansion& ops_;
  const ParamLayout whole_;
  const GridPosition at_;
  const int64_t ranks_;
  const bool each_backward_, tied_, cuts_rows_;
  std::vector<FlatTensor> trained_, frozen_;
  std::vector<int64_t> numbers_;  // of the trained ones
};

int64_t weight_bytes(const CallFrame& frame) {
  const auto& precision = frame.where->strategy.precision;
  return static_cast<int64_t>((precision ? widths_of(*precision) : frame.model->widths).gathered);
}

class TransferLister {
 public:
  TransferLister(const CallFrame& frame, const CallTensors& tensors, const Expansion& ops)
      : frame_(frame), ops_(ops), held_(frame, tensors, ops), weight_bytes_(weight_bytes(frame)) {}

  std::vector<ListedTransfer> list(const CallTensors& tensors, const Op& op, const OpRows& rows) {
    held_.list(tensors);
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kBackward:
      case OpKind::kSample:
        list_inside(op, rows);
        break;
      case OpKind::kSend:
      case OpKind::kReceive:
        add({op.kind, -1, false, 1, whole(op.bytes)});
        break;
      case OpKind::kNorm:
      case OpKind::kAgree:
        add({OpKind::kAllReduce, op.group, false, 1, whole(op.bytes)});
        break;
      case OpKind::kBroadcast:
        add({op.kind, op.group, false, 1, whole(op.bytes)});
        break;
      case OpKind::kAllGather:
        add_buckets({op.kind, op.group}, held_.gradients(), weight_bytes_);
        break;
      case OpKind::kAllReduce:
      case OpKind::kReduceScatter:
        list_reduction(op);
        break;
      default:
        break;
    }
    return std::move(out_);
  }

 private:
  static int64_t whole(double bytes) { return std::llround(bytes); }

  void add(const ListedTransfer& transfer) {
    const bool alone = transfer.group >= 0 && ops_.groups[transfer.group].members.size() == 1;
    if (transfer.bytes > 0 && transfer.count > 0 && !alone) out_.push_back(transfer);
  }
  void add_buckets(ListedTransfer transfer, const std::vector<FlatBucket>& buckets,
                   int64_t number_bytes, int64_t parts = 1) {
    for (const FlatBucket& bucket : buckets) {
      transfer.bytes = bucket.padded / parts * number_bytes;
      add(transfer);
    }
  }

  void list_inside(const Op& op, const OpRows& rows) {
    for (const InsideOp& inside : inside_of(ops_, op)) {
      if (op.kind != OpKind::kSample && among_copies(ops_.groups[inside.group].kind)) {
        const OpBody& body = ops_.bodies[op.body];
        if (inside.kind == OpKind::kAllGather)
          add_buckets({inside.kind, inside.group, true},
                      held_.brought(body, op.kind == OpKind::kForward), weight_bytes_);
        else
          add_buckets({inside.kind, inside.group}, held_.gradients_of(body), kGradientBytes);
        continue;
      }
      const int64_t counted = op.kind == OpKind::kSample ? rows.drawn
                              : inside.of_head           ? rows.head
                                                         : rows.tokens;
      add({inside.kind, inside.group, false, whole(inside.times),
           whole(bytes_of(inside, static_cast<double>(counted)))});
    }
  }

  void list_reduction(const Op& op) {
    const GroupKind over = ops_.groups[op.group].kind;
    if (among_copies(over)) {
      const bool slices = over == GroupKind::kAcross;
      return add_buckets({op.kind, op.group}, held_.gradients(), kGradientBytes,
                         slices ? held_.ranks() : 1);
    }
    std::vector<Partial> kinds = {Partial::kTensor};
    if (over == GroupKind::kShared) kinds = {Partial::kShared};
    if (over == GroupKind::kEnds) kinds = {Partial::kEnds};
    const bool one_head = std::any_of(
        frame_.model->kinds.begin(), frame_.model->kinds.end(),
        [](const TensorKind& kind) { return kind.name == "key_value" && kind.units == 1; });
    if (over == GroupKind::kTensor && one_head) kinds.push_back(Partial::kShared);
    add({op.kind, op.group, false, 1, held_.partial_elements(kinds) * kGradientBytes});
  }

  const CallFrame& frame_;
  const Expansion& ops_;
  HeldTensors held_;
  const int64_t weight_bytes_;
  std::vector<ListedTransfer> out_;
};

}  // namespace

CallTensors call_tensors(const ModelSpec& spec, bool trained, const CallAdapters& adapters) {
  CallTensors out;
  out.tied = spec.tied_embeddings && !spec.scalar_head;
  const bool adapts = adapters.rank > 0;
  const Named weights = named_tensors(tensor_map(spec), trained && !adapts, false);
  Named adapted;
  if (adapts)
    adapted = named_tensors(adapter_map(spec, adapters.rank, adapters.targets), trained, true);
  const std::vector<std::string> names = names_in_order(spec);
  for (const std::string& name : names) {
    const auto found = weights.find(name);
    BRAID_CHECK(found != weights.end(), name + " is in no kind of tensors");
    out.tensors.push_back(found->second);
    if (adapted.count(name) > 0) out.tensors.back().trained = trained;  // the scalar head
  }
  for (const std::string& name : names)
    for (const auto& [adapter, tensor] : adapted)
      if (name.ends_with(".weight") && adapter != name &&
          without("base_model.model.", module_of(adapter)) == module_of(name))
        out.tensors.push_back(tensor);
  return out;
}

std::vector<ListedTransfer> transfers_of(const CallFrame& frame, const CallTensors& tensors,
                                         const Expansion& ops, const Op& op, const OpRows& rows) {
  return TransferLister(frame, tensors, ops).list(tensors, op, rows);
}

std::vector<int64_t> gathers_of_layer(const CallFrame& frame, const CallTensors& tensors,
                                      const Expansion& ops, int64_t layer) {
  HeldTensors held(frame, tensors, ops);
  held.list(tensors);
  std::vector<int64_t> out;
  for (const FlatBucket& bucket : held.brought(held.units_of_layer(layer)))
    out.push_back(bucket.padded * weight_bytes(frame));
  return out;
}

}  // namespace braid::inline program

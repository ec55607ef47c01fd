#include "weights/move_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "host/work_section.h"
#include "program/local_parts.h"
#include "weights/model_store.h"
#include "weights/reallocate.h"

namespace braid::inline weights {
namespace {

// Units of a model that one layer is in.
std::vector<int64_t> units_of(const ModelInstance& instance, int64_t layer) {
  int64_t before = 0;  // layers that the model holds
  for (const LayerRange& range : instance.model->ranges()) {
    if (layer >= range.begin && layer < range.end) return {before + layer - range.begin + 1};
    before += range.end - range.begin;
  }
  return layer == kEndsOfModel ? std::vector<int64_t>{0, before + 1} : std::vector<int64_t>{};
}

}  // namespace

class StartedMove::Mover {
 public:
  Mover(const WeightMove& move, DeviceId self)
      : move_(move),
        self_(self),
        kinds_(kinds_of(move.map)),
        layers_((move.source != nullptr ? move.source : move.target)->model->spec().layers) {
    if (move_.source != nullptr) reads_.emplace(*move_.source->model, move_.map);
    if (move_.target != nullptr) writes_.emplace(*move_.target->model, move_.map);
  }

  Status start() {
    if (sharded()) return ok_status();
    whole_.emplace(move_.messages, reads_ ? &*reads_ : nullptr, writes_ ? &*writes_ : nullptr,
                   *move_.everyone, options());
    return whole_->start(kept_here());
  }

  bool goes_on() const { return whole_.has_value(); }
  const TransferCounts& begun_beside() const { return begun_beside_; }

  Status finish() {
    if (whole_) {
      BRAID_TRY(whole_->finish());
      begun_beside_ = whole_->begun_beside();
      return ok_status();
    }
    const auto all_kept = kept_here();
    for (int64_t layer = kEndsOfModel; layer < layers_; ++layer)
      BRAID_TRY(run_layer(layer, parts_of_layer(all_kept, kinds_, layer)));
    return ok_status();
  }

 private:
  bool sharded() const { return move_.from.layout.sharded || move_.to.layout.sharded; }

  // What this rank has itself and copies: that of which the target has the source's memory is
  // there.
  std::vector<MessagePart> kept_here() const {
    std::vector<MessagePart> out;
    for (const MessagePart& part :
         kept_parts(kinds_, layers_, move_.from.layout, move_.to.layout, self_))
      for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
        if (!writes_->is_alias_of(*reads_, part.item, layer, part.units))
          out.push_back({part.item, {layer, layer + 1}, part.units});
    return out;
  }

  ReallocateOptions options() const {
    ReallocateOptions options;
    options.channel = move_.channel;
    options.compare = move_.compare;
    return options;
  }

  Status send(const std::vector<Message>& messages, const std::vector<MessagePart>& kept) {
    return reallocate(messages, kept, reads_ ? &*reads_ : nullptr, writes_ ? &*writes_ : nullptr,
                      *move_.everyone, options())
        .status();
  }

  Status run_layer(int64_t layer, const std::vector<MessagePart>& kept) {
    WeightShards* from = move_.source != nullptr ? move_.source->shards.get() : nullptr;
    WeightShards* to = move_.target != nullptr ? move_.target->shards.get() : nullptr;
    if (from != nullptr)
      for (const int64_t unit : units_of(*move_.source, layer)) BRAID_TRY(from->gather(unit));
    if (to != nullptr)
      for (const int64_t unit : units_of(*move_.target, layer)) BRAID_TRY(make_room(*to, unit));
    BRAID_TRY(send(messages_of_layer(move_.messages, kinds_, layer), kept));
    if (to != nullptr) BRAID_TRY(share(layer));
    if (from != nullptr)
      for (const int64_t unit : units_of(*move_.source, layer)) from->leave(unit);
    if (to != nullptr)
      for (const int64_t unit : units_of(*move_.target, layer)) to->close(unit);
    return ok_status();
  }

  // Under adapters only these move; what is below them is as it was.
  Status make_room(WeightShards& to, int64_t unit) const {
    if (move_.target->model->options().lora.rank > 0) return to.gather(unit);
    to.open(unit);
    return ok_status();
  }

  // What a rank has of a layer under the target's layout.
  std::vector<MessagePart> held(int64_t rank, int64_t layer) const {
    const auto place = place_in_mesh(move_.to.layout, DeviceId{static_cast<int>(rank)});
    BRAID_CHECK(place.has_value(), "a rank of the target's group is in its mesh");
    return parts_of_layer(held_parts(kinds_, layers_, move_.to.layout, *place), kinds_, layer);
  }

  // Slices as the program cuts them become whole tensors on each of the ranks that share them,
  // which then keep slices as their gathers cut them.
  Status share(int64_t layer) {
    const at::NoGradGuard no_grad;
    std::vector<std::vector<MessagePart>> parts;
    int64_t most = 0;
    for (const int64_t member : move_.holders->members()) {
      parts.push_back(held(member, layer));
      most = std::max(most, elements_of(parts.back()));
    }
    if (most == 0) return ok_status();
    const WorkSection section;
    const auto options = at::TensorOptions().dtype(writes_->dtype());
    const at::Tensor own = at::empty({most}, options.device(move_.target->model->options().device));
    const at::Tensor all = at::empty({most * move_.holders->size()}, own.options());
    each_span(parts[move_.holders->index()], own,
              [&](const MessagePart& part, const at::Tensor& at) {
                writes_->read(part.item, part.layers.begin, part.units, at);
              });
    BRAID_TRY(move_.holders->all_gather(all, own, cat("slices of layer ", layer)).wait());
    for (int64_t member = 0; member < move_.holders->size(); ++member)
      each_span(parts[member], all.narrow(0, member * most, most),
                [&](const MessagePart& part, const at::Tensor& at) {
                  writes_->write(part.item, part.layers.begin, part.units, at);
                });
    return ok_status();
  }

  // Calls visit(part of one layer, its place in the buffer).
  template <typename Visit>
  static void each_span(const std::vector<MessagePart>& parts, const at::Tensor& buffer,
                        const Visit& visit) {
    int64_t begin = 0;
    for (const MessagePart& part : parts) {
      visit(part, buffer.narrow(0, begin, part.units.size()));
      begin += part.units.size();
    }
  }

  const WeightMove move_;
  const DeviceId self_;
  const std::vector<TensorKind> kinds_;
  const int64_t layers_;
  std::optional<ModelStore> reads_, writes_;
  TransferCounts begun_beside_;
  std::optional<ReallocationRun> whole_;  // of weights that are no slices, once it has started
};

StartedMove::StartedMove(const WeightMove& move, DeviceId self)
    : mover_(std::make_unique<Mover>(move, self)) {}
StartedMove::~StartedMove() = default;
Status StartedMove::start() { return mover_->start(); }
bool StartedMove::goes_on() const { return mover_->goes_on(); }
Status StartedMove::finish() { return mover_->finish(); }
const TransferCounts& StartedMove::begun_beside() const { return mover_->begun_beside(); }

}  // namespace braid::inline weights

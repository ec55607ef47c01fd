#include "nn/model_share.h"

#include <ATen/ops/from_blob.h>

#include "base/text.h"
#include "device/device_copy.h"
#include "host/scratch_map.h"
#include "nn/decoder.h"

namespace braid::inline nn {

std::unique_ptr<Model> share_model(const Model& model) {
  auto shared = std::make_unique<Decoder>(dynamic_cast<const Decoder&>(model));
  shared->detach_leaves();
  return shared;
}

std::unique_ptr<Model> copy_model(const Model& model) {
  auto copy = std::make_unique<Decoder>(dynamic_cast<const Decoder&>(model));
  copy->clone_storage();
  return copy;
}

namespace {

// Passes every call on to another model. Frozen: it lists no parameters of its own to train.
class WrappedModel : public Model {
 public:
  at::Tensor forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                     const at::Tensor& hidden_in, size_t range) override {
    return inner_->forward(batch, kv, hidden_in, range);
  }
  at::Tensor head_weight() const override { return inner_->head_weight(); }
  std::vector<std::pair<std::string, at::Tensor>> parameters() const override {
    return inner_->parameters();
  }
  void set_adapters(bool) override {}
  void cut_rows(bool on) override { inner_->cut_rows(on); }
  void keep_packed(bool keep) override { inner_->keep_packed(keep); }
  void weights_changed() override { inner_->weights_changed(); }
  const PackedLinear& packed_head() override { return inner_->packed_head(); }
  bool comes_and_goes() const override { return inner_->comes_and_goes(); }
  void hold_head() override { inner_->hold_head(); }
  void let_go() override { inner_->let_go(); }
  void pass_by(const PassedBy& pass) override { inner_->pass_by(pass); }
  void rest() override { inner_->rest(); }

 protected:
  explicit WrappedModel(Model& inner) : inner_(&inner) {
    spec_ = inner.spec();
    local_spec_ = inner.local_spec();
    options_ = inner.options();
  }
  Model* inner_;
};

class BaseView : public WrappedModel {
 public:
  explicit BaseView(Model& model) : WrappedModel(model) { options_.lora.rank = 0; }

  at::Tensor forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                     const at::Tensor& hidden_in, size_t range) override {
    const AdaptersOff scope(*inner_);
    return inner_->forward(batch, kv, hidden_in, range);
  }
  at::Tensor head_weight() const override {
    const AdaptersOff scope(*inner_);
    return inner_->head_weight();
  }
  const PackedLinear& packed_head() override {
    const AdaptersOff scope(*inner_);
    return inner_->packed_head();
  }
  std::vector<std::pair<std::string, at::Tensor>> parameters() const override {
    std::vector<std::pair<std::string, at::Tensor>> base;
    for (auto& item : inner_->parameters())
      if (item.first.find(".lora_") == std::string::npos) base.push_back(std::move(item));
    return base;
  }

 private:
  // Switches the adapters on again at the end of the scope, whatever ends it.
  struct AdaptersOff {
    explicit AdaptersOff(Model& model) : model(model) { model.set_adapters(false); }
    ~AdaptersOff() { model.set_adapters(true); }
    AdaptersOff(const AdaptersOff&) = delete;
    AdaptersOff& operator=(const AdaptersOff&) = delete;
    Model& model;
  };
};

class OffloadedModel : public WrappedModel {
 public:
  OffloadedModel(std::unique_ptr<Decoder> decoder, std::shared_ptr<const ScratchMap> weights)
      : WrappedModel(*decoder), decoder_(std::move(decoder)), weights_(std::move(weights)) {
    // One layer at a time is in memory: it is read again, from the system's cache, by the next
    // micro-batch.
    decoder_->set_layer_done([map = weights_.get()] { map->drop_pages(); });
  }

  void rest() override {
    decoder_->rest();
    weights_->drop_pages();
  }

 private:
  std::unique_ptr<Decoder> decoder_;
  std::shared_ptr<const ScratchMap> weights_;
};

// Weights that lie in pinned host memory while the model rests. A use copies each of them to the
// device once; layers compute as soon as theirs are there.
class ParkedModel : public WrappedModel {
 public:
  explicit ParkedModel(std::unique_ptr<Decoder> decoder)
      : WrappedModel(*decoder), decoder_(std::move(decoder)) {
    replace([&](const at::Tensor& tensor, int64_t) {
      parked_.push_back(pinned_for(to_host(tensor), options_.device));
      return parked_.back();
    });
    decoder_->set_unit_begin([this](int64_t unit) { await(unit - 1); });
  }

  at::Tensor forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                     const at::Tensor& hidden_in, size_t range) override {
    if (parked()) bring();
    return decoder_->forward(batch, kv, hidden_in, range);
  }
  at::Tensor head_weight() const override {
    BRAID_CHECK(!parked(), "the head of a model that rests");
    return decoder_->head_weight();
  }
  void rest() override {
    decoder_->rest();
    copies_.clear();
    size_t next = 0;
    replace([&](const at::Tensor&, int64_t) { return parked_[next++]; });
  }

 private:
  // A weight on its way, and the layer that needs it.
  struct Coming {
    int64_t layer;
    StartedCopy copy;
  };

  bool parked() const { return copies_.empty(); }

  void replace(const Decoder::Place& place) {
    decoder_->replace_storage(place);
    decoder_->visit_base(
        [](const std::string&, at::Tensor& tensor) { tensor.set_requires_grad(false); });
  }

  void bring() {
    replace([&](const at::Tensor& tensor, int64_t layer) {
      copies_.push_back({layer, start_copy(tensor, options_.device)});
      return copies_.back().copy.tensor;
    });
    await(Decoder::kNoLayer);
  }

  void await(int64_t layer) const {
    for (const Coming& coming : copies_)
      if (coming.layer == layer) finish_copy(coming.copy);
  }

  std::unique_ptr<Decoder> decoder_;
  std::vector<at::Tensor> parked_;
  std::vector<Coming> copies_;  // since the last rest
};

}  // namespace

std::unique_ptr<Model> base_view(Model& model) { return std::make_unique<BaseView>(model); }

Result<std::unique_ptr<Model>> make_role(const Model& base, const LoadOptions& options) {
  const auto* decoder = dynamic_cast<const Decoder*>(&base);
  BRAID_CHECK(decoder != nullptr, "a role is made over a model that owns its weights");
  if (base.spec().scalar_head && !options.scalar_head)
    return invalid_input("the checkpoint has a scalar head where a language model is wanted");
  BRAID_TRY(Decoder::validate_options(base.spec(), options.model));
  auto role = std::make_unique<Decoder>(*decoder);
  role->become_role(options.model, options.scalar_head);
  init_adapters(*role);
  return std::unique_ptr<Model>(std::move(role));
}

Result<std::unique_ptr<Model>> offload_model(const Model& model, const std::string& folder) {
  const auto* source = dynamic_cast<const Decoder*>(&model);
  BRAID_CHECK(source != nullptr, "only a model that owns its weights is offloaded");
  auto decoder = std::make_unique<Decoder>(*source);
  if (!model.options().device.is_cpu())
    return std::unique_ptr<Model>(std::make_unique<ParkedModel>(std::move(decoder)));
  std::vector<std::string_view> pieces;
  decoder->replace_storage([&](const at::Tensor& tensor, int64_t) {
    BRAID_CHECK(tensor.is_contiguous(), "weights lie in one piece each");
    pieces.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    return tensor;
  });
  BRAID_ASSIGN(const std::shared_ptr<const ScratchMap> weights, ScratchMap::create(folder, pieces));
  size_t next = 0;
  decoder->replace_storage([&](const at::Tensor& tensor, int64_t) {
    void* data = const_cast<uint8_t*>(weights->piece(next++));
    const auto keep_alive = [weights](void*) {};
    return at::from_blob(data, tensor.sizes(), keep_alive, tensor.options().requires_grad(false));
  });
  decoder->visit_base(
      [](const std::string&, at::Tensor& tensor) { tensor.set_requires_grad(false); });
  auto offloaded = std::make_unique<OffloadedModel>(std::move(decoder), weights);
  offloaded->rest();
  return std::unique_ptr<Model>(std::move(offloaded));
}

}  // namespace braid::inline nn

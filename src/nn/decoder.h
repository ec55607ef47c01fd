// The one Model: a decoder built from a ModelSpec and its family's tensor names. Not thread-safe.
// Invariant: every part of a linear layer is a view of the joined storage. Packed copies of
// matrices are kept from a generating forward, or any under keep_packed(), until weights_changed()
// or rest(); never of weights that come and go.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/progress.h"
#include "models/family.h"
#include "nn/decoder_layer.h"
#include "nn/model.h"
#include "nn/shard.h"
#include "nn/weight_keeper.h"

namespace braid::inline nn {

// The tensors of some ranges of layers, in the model's order.
std::vector<TensorSpec> tensors_of(const ModelSpec& spec, const std::vector<LayerRange>& ranges);

class Decoder : public Model {
 public:
  using Named = std::pair<std::string, at::Tensor>;
  using Visit = std::function<void(const std::string& name, at::Tensor& tensor)>;

  // Weights are allocated and uninitialized, but for those of which `lender` holds the same part:
  // they are its memory. REQUIRES: validate_options() accepts the two; the lender is of the same
  // spec, dtype and device.
  Decoder(const ModelSpec& spec, const ModelOptions& options, const Decoder* lender = nullptr);

  // See check_model_options().
  static Status validate_options(const ModelSpec& spec, const ModelOptions& options);

  at::Tensor forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                     const at::Tensor& hidden_in, size_t range) override;
  at::Tensor head_weight() const override;
  at::Tensor value_weight() const override;
  std::vector<Named> parameters() const override;
  void set_adapters(bool on) override { adapters_on_ = on; }
  void cut_rows(bool on) override { ranks_.sequence_parallel = on; }
  void keep_packed(bool keep) override { keep_packed_ = keep; }
  void weights_changed() override;
  bool comes_and_goes() const override { return keeper_ != nullptr; }
  void hold_head() override;
  void let_go() override;
  void pass_by(const PassedBy& pass) override;
  void rest() override;
  const PackedLinear& packed_head() override;

  // Called before a forward uses a unit (see units()); and after each layer of a forward without a
  // cache.
  void set_unit_begin(std::function<void(int64_t unit)> begin) { unit_begin_ = std::move(begin); }
  void set_layer_done(std::function<void()> done) { layer_done_ = std::move(done); }

  // Who brings its weights when they are used; null: they stay. REQUIRES: it outlives every use.
  void set_keeper(WeightKeeper* keeper) { keeper_ = keeper; }
  WeightKeeper* keeper() const { return keeper_; }

  // Tensors are used unit by unit: 0 is what tokens enter by, then the layers of its ranges come,
  // then final norm and head. A tied head that is the embedding is in its unit.
  int64_t units() const { return static_cast<int64_t>(layers_.size()) + 2; }
  // Of a tensor or adapter of this name.
  int64_t unit_of(const std::string& name) const;
  // Whether passes of a range use a unit.
  bool uses_unit(size_t range, int64_t unit) const;
  // Units [first, second) of layers [begin, end) of the model, with the ends of the model that lie
  // beside them. REQUIRES: one of its ranges has these layers.
  std::pair<int64_t, int64_t> units_of_layers(int64_t begin, int64_t end) const;
  double lora_scale() const;
  // What this rank holds of each of its tensors and adapters, by name.
  const std::map<std::string, TensorShard>& shards() const { return shards_; }
  // Its tensors in the order of visit_base().
  std::vector<TensorSpec> tensors() const { return tensors_of(spec_, ranges()); }
  // The tensors of a checkpoint in the order of model_tensors(), and the adapters in PEFT's names.
  void visit_base(const Visit& visit);
  void visit_adapters(const Visit& visit);
  // As visit_base with read access, where a matrix with an adapter has it merged in.
  std::vector<Named> merged_parameters() const;

  // Gives this instance its own leaves over the same storage, or over copies.
  void detach_leaves();
  void clone_storage();
  // Puts what `place` returns in the place of every stored base tensor (joined matrices whole);
  // shapes must stay. `layer` is its place in the range, kNoLayer for embedding, last norm and
  // head, which come first.
  static constexpr int64_t kNoLayer = -1;
  using Place = std::function<at::Tensor(const at::Tensor&, int64_t layer)>;
  void replace_storage(const Place& place);
  // Makes a fresh copy of an instance a role of its own over the same base: uninitialized adapters
  // by the options, and a score head of its own (a copy, or zero) when one is wanted.
  void become_role(const ModelOptions& options, bool scalar_head);

 private:
  void allocate(const at::TensorOptions& tensor_options, const Decoder* lender);
  // What `lender` holds of the same parts as this, by name.
  std::map<std::string, at::Tensor> lent_by(const Decoder& lender) const;
  void add_adapters(const at::TensorOptions& tensor_options);
  void mark_trainable();
  // The tensor-parallel ranks of a pass.
  const TensorParallelGroup& ranks_of(bool cached) const {
    return cached ? ranks_over_caches_ : ranks_;
  }
  at::Tensor embed(const TokenBatch& batch, const TensorParallelGroup& group) const;
  // What layers that see all keys need, and those that see a window of them.
  struct LayerContexts {
    LayerContext full, windowed;
  };
  LayerContexts layer_contexts(const TokenBatch& batch, bool training, bool cached);
  // Of a layer of the whole model.
  const LayerContext& context_of(int64_t layer, const LayerContexts& contexts) const {
    return is_windowed(spec_, layer) ? contexts.windowed : contexts.full;
  }
  void grow_ropes(const AttentionBatch& batch);
  void drop_packed();
  void begin_unit(int64_t unit) const {
    note_progress();
    if (unit_begin_) unit_begin_(unit);
  }
  at::Tensor enter(const TokenBatch& batch, bool cached);
  at::Tensor pass_layer(size_t index, const LayerContext& context, const at::Tensor& h,
                        const KvLayer* cache);
  at::Tensor pass_layers(size_t range, const LayerContexts& contexts, at::Tensor h,
                         const std::vector<KvLayer>* kv);
  // Makes a unit whole, and lets the one that is used after it come; kNoUnit: none is.
  static constexpr int64_t kNoUnit = -1;
  void bring(int64_t unit, int64_t next);
  int64_t unit_after(size_t index, size_t range) const;
  at::Tensor pass_kept_layer(size_t index, size_t range, const LayerContext& context,
                             const at::Tensor& h, const KvLayer* cache);

  void pass_by_forward(const PassedBy& pass);
  void pass_by_backward(const PassedBy& pass);
  std::vector<LayerGradients> gradients_of(const PassedBy& pass) const;
  void pass_by_unit(int64_t unit, int64_t next, const PassedBy& pass,
                    const std::function<void()>& messages);

  void find_shards();
  // Where the layers of a range begin and end in layers_.
  std::pair<size_t, size_t> places_of(size_t range) const;

  TensorParallelGroup ranks_, ranks_over_caches_;
  std::map<std::string, TensorShard> shards_;
  at::Tensor embedding_, positions_, head_;
  at::Tensor value_;                      // a scalar head beside it; else undefined
  at::Tensor rope_, window_rope_;         // tables of full and of windowed layers, grown on demand
  at::Tensor head_lora_a_, head_lora_b_;  // [r, H] and [V, r]; undefined without adapter
  std::vector<DecoderLayer> layers_;      // of all ranges, one after another
  NormWeights final_norm_;
  mutable at::Tensor adapted_head_;  // head with its adapter, for forwards without gradients
  PackedLinear head_packed_, base_head_packed_;  // with and without the head's adapter
  bool adapters_on_ = true, keep_packed_ = false;
  std::function<void(int64_t)> unit_begin_;
  std::function<void()> layer_done_;
  WeightKeeper* keeper_ = nullptr;
};

// Fills base weights as transformers initializes them, and adapters as PEFT does (A uniform in
// +-1/sqrt(in), B zero): functions of (seed, tensor name) alone.
void init_weights(Decoder& decoder);
void init_adapters(Decoder& decoder);

}  // namespace braid::inline nn

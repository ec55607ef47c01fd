// A decoder over a range of layers, with hidden states in and out, and its heads. One
// implementation serves sampling, scoring and training. Not thread-safe; parameters may be shared
// between instances (same storage).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "host/adapter_folder.h"
#include "models/spec.h"
#include "nn/kernels/kernels.h"
#include "nn/read_blocks.h"
#include "nn/tensor_parallel.h"

namespace braid::inline nn {

// Layers [begin, end) of the model; the first range holds the embedding, the last the final norm
// and head.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

struct LoraOptions {
  int64_t rank = 0;   // 0 = off (Hu et al., 2021)
  double alpha = 16;  // update is scaled by alpha / rank
  // HF module names; "all-linear" is every matrix of the layers, "lm_head" the head.
  std::vector<std::string> targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  double dropout = 0;  // share of an adapter's input that training leaves out (not of lm_head's)
};

// What a training forward keeps of each layer for the backward, which computes the rest again (Chen
// et al., arXiv 1604.06174; Korthikanti et al., arXiv 2205.05198).
enum class KeptActivations {
  kAll,
  kWithoutAttention,  // of attention its input alone
  kInputs,            // the layer's input alone
};

struct ModelOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::vector<LayerRange> ranges = {};  // in the model's order; empty = all layers in one
  TensorParallelGroup tensor_parallel = {};
  KeptActivations kept = KeptActivations::kAll;
  LoraOptions lora = {};
  uint64_t seed = 0;  // of random initial weights (heads and adapters that a checkpoint lacks)
};

// A packed batch of tokens: the input of every forward. Whole sequences without a cache, new tokens
// with one.
struct TokenBatch {
  at::Tensor tokens_T;     // int64
  at::Tensor positions_T;  // int64
  AttentionBatch attention;
  // Tells which token of which sample each row is, however samples are packed; dropout is a
  // function of it. Empty with a cache.
  std::vector<uint64_t> row_keys_T;
};

// The first tokens that a sequence shares with an earlier one, its host; host -1: none.
struct SharedStart {
  int32_t host = -1;
  int32_t tokens = 0;
};

// Packs whole sequences one after another (no cache). A sequence's shared start is left out: its
// rows are the host's, and forwards give the remaining rows the bits that they have in the whole
// sequence. `starts` has an entry per sequence, or none; so has `keys`, a key for each token of a
// sequence, shared ones included (none: functions of the tokens up to each). REQUIRES: a host
// begins with the same tokens and keys and has no host itself.
TokenBatch pack_sequences(const std::vector<std::vector<int32_t>>& sequences, at::Device device,
                          const std::vector<SharedStart>& starts = {},
                          const std::vector<std::vector<uint64_t>>& keys = {});

// A pass that other ranks compute and this one does not.
struct PassedBy {
  bool backward = false;
  bool cached = false;  // over caches
  int64_t rows = 0;     // of the micro-batch; 0: tensor-parallel ranks do not compute it either
  // Those of them that the head of a language model takes; none: it does not follow.
  std::optional<int64_t> head_rows = {};
  size_t range = 0;
  // Where weights come and go, called after each unit (Decoder::unit_of()).
  std::function<void(int64_t unit)> passed = {};
};

class Model {
 public:
  virtual ~Model() = default;

  const ModelSpec& spec() const { return spec_; }
  // The sizes that this tensor-parallel rank holds: heads, key-value heads, MLP width, vocabulary.
  const ModelSpec& local_spec() const { return local_spec_; }
  const ModelOptions& options() const { return options_; }
  // The layers that it holds: at least one range.
  std::vector<LayerRange> ranges() const;
  bool has_first() const { return ranges().front().begin == 0; }
  bool has_last() const { return ranges().back().end == spec_.layers; }

  // Hidden states [T, H] after the last layer and the final norm (or after the range's last layer).
  // `kv` has one entry per layer of the range, or is null for whole sequences; hidden_in replaces
  // the embedding when the range does not start at layer 0; `range` counts the ranges that this
  // model has. Builds the autograd graph iff grad mode is on. Under sequence parallelism what
  // passes between ranges has this rank's rows alone, unless there are caches; the last range gives
  // all rows, and its gradient must be complete and equal on the ranks.
  virtual at::Tensor forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                             const at::Tensor& hidden_in = {}, size_t range = 0) = 0;

  // The head matrix: [V, H] of a language model (tied or not; this rank's rows under tensor
  // parallelism), [1, H] of a scalar head.
  virtual at::Tensor head_weight() const = 0;
  // The matrix [1, H] of a scalar head, alone or beside that of a language model.
  virtual at::Tensor value_weight() const;

  // Parameters by their Hugging Face names ("model.layers.0.self_attn.q_proj.weight"), in file
  // order; adapters follow in PEFT's naming. Tied weights occur once.
  virtual std::vector<std::pair<std::string, at::Tensor>> parameters() const = 0;

  // The parameters that training updates: all of them, or the adapters and the scalar head under
  // LoRA.
  std::vector<std::pair<std::string, at::Tensor>> trainable_parameters() const;

  // Turns the adapters off (reference = base of a LoRA actor) or on; no effect without LoRA.
  virtual void set_adapters(bool on) = 0;

  // Whether the next passes of whole sequences keep only this rank's rows outside the shared region
  // (TensorParallelGroup::sequence_parallel): calls that share weights may differ in it. At first
  // as the options say; no effect on one tensor-parallel rank.
  virtual void cut_rows(bool on) = 0;

  // What LoRA's dropout leaves out in the next forwards that record gradients is a function of
  // this.
  void set_dropout_seed(uint64_t seed) { dropout_seed_ = seed; }

  // Must be called after parameters change: drops whatever was derived from them (packed copies).
  virtual void weights_changed() = 0;

  // Whether forwards without a cache keep packed copies of their matrices until weights_changed()
  // or rest(), at the price of the weights' memory (twice that in training): worth it where several
  // micro-batches use the same weights. Else each GEMM packs its matrix and forgets it. Results
  // do not depend on it. Off at first.
  virtual void keep_packed(bool keep) = 0;

  // The head matrix as pack_linear() gives it, made on first use and kept until weights_changed().
  virtual const PackedLinear& packed_head() = 0;

  // Whether weights are whole only while they are used (weight_keeper.h). Then forwards bring them
  // and let those of the layers go. The head's stay until let_go(), for whoever uses it after the
  // forward; before a backward hold_head() brings them again.
  virtual bool comes_and_goes() const { return false; }
  virtual void hold_head() {}
  virtual void let_go() {}
  // Does what ranks do together in a forward (or its backward) of other ranks, in their order, and
  // computes nothing: weights that come and go are brought, and tensor-parallel ranks get zeros.
  virtual void pass_by(const PassedBy& /*pass*/) {}

  // Says that the model is not needed for a while: packed copies are dropped, and offloaded weights
  // (model_share.h) leave memory until the next forward. Results do not depend on it.
  virtual void rest() = 0;

 protected:
  ModelSpec spec_, local_spec_;
  ModelOptions options_;
  uint64_t dropout_seed_ = 0;
};

// Log-probs and entropies of the language-model head, as head_logprobs() of kernels.h, whoever
// holds the vocabulary's rows. Differentiable.
HeadOutput head_logprobs(const Model& model, const at::Tensor& h_NH, const at::Tensor& targets_N,
                         double temperature, int64_t chunk_rows = 256);

// Logits [N, V] in f32 of rows of hidden states, for sampling; rows are batch-invariant.
at::Tensor logits(Model& model, const at::Tensor& hidden_NH);

// Of them those of the tokens that this tensor-parallel rank has (units_of_rank() of shard.h).
at::Tensor own_logits(Model& model, const at::Tensor& hidden_NH);

// Scalar-head outputs [N] in f32 of rows of hidden states (value or score).
at::Tensor scalar_outputs(const Model& model, const at::Tensor& hidden_NH);

// A layer range outside the model, tensor parallelism that does not fit, and LoRA targets or a rank
// that do not fit the model are errors.
Status check_model_options(const ModelSpec& spec, const ModelOptions& options);

// Called with a model that is being loaded: when its tensors are there and, unless `loaded`, before
// they have values. A keeper of its weights (weight_keeper.h) that is set then gets them unit by
// unit, so that never more than one is whole.
using ModelPlaced = std::function<void(Model& model, bool loaded)>;

// A model with random weights as transformers initialises them (normal, std 0.02), a function of
// (spec, seed).
Result<std::unique_ptr<Model>> make_model(const ModelSpec& spec, const ModelOptions& options,
                                          const ModelPlaced& placed = {});

// How a checkpoint whose head differs from the wanted one is read.
struct LoadOptions {
  ModelOptions model = {};
  bool scalar_head = false;  // want score.weight: a language-model checkpoint gets a zero score
                             // head and drops lm_head
  bool value_head = false;   // want score.weight beside lm_head, zero where the checkpoint has none
  ModelPlaced placed = {};
  ReadBlocks* read = nullptr;  // gets what is read of the tensors; null: nothing is hashed
  // Of ranks that hold equal parts of the tensors: the first one reads, and sends the others what
  // it has read. Null: this rank reads for itself.
  Communicator* readers = nullptr;
};

// Loads a Hugging Face folder (config.json, model.safetensors or the sharded index), tensor by
// tensor from a memory map; of each only what the options place here, and of that, where a keeper
// of the weights (weight_keeper.h) keeps slices, only the rows that these lie in. A PEFT adapter
// folder loads as its base, which must be a local folder, with the adapters on. Errors (unknown
// architecture, missing or extra tensor, wrong shape, truncated file, corrupt header, NaN) name
// file and tensor.
Result<std::unique_ptr<Model>> load_model(const std::string& folder, const LoadOptions& options);

// A second instance with the same parameter storage (reference = initial actor until training
// changes it: then use copy_model first).
std::unique_ptr<Model> share_model(const Model& model);
std::unique_ptr<Model> copy_model(const Model& model);

// The rank, alpha and targets of a PEFT adapter folder (adapter_config.json); variants of LoRA that
// compute something else are errors.
Result<LoraOptions> read_lora_options(const std::string& folder);

// Fills the adapters (and a saved score head) of a model that was built with read_lora_options() of
// the same folder from its adapter_model.safetensors; missing, extra or misshapen tensors are
// errors.
Status load_adapters(Model& model, const std::string& folder);

struct ExportOptions {
  std::string source_folder;   // config, tokenizer, template and generation_config are copied from
                               // here byte for byte
  std::string config = {};     // the model's config file; "" = config.json of source_folder
  std::string tokenizer = {};  // folder or tokenizer.json of another tokenizer; "" = the source's
  std::optional<at::ScalarType> dtype = {};  // empty = the source's dtype
  bool merge_adapters =
      true;  // false: write PEFT adapter_model.safetensors and adapter_config.json instead
};

// Writes a complete Hugging Face folder; nothing is left behind on failure.
Status save_model(const Model& model, const std::string& folder, const ExportOptions& options);

// The same of a model that is never in memory as a whole: calls `use` with parts of it that have
// its layers one after another, and stops at a failure.
using ModelParts = std::function<Status(const std::function<Status(const Model&)>& use)>;
Status save_model(const ModelParts& parts, const std::string& folder, const ExportOptions& options);

}  // namespace braid::inline nn

#include "models/family.h"

#include <algorithm>

#include "models/families/families.h"

namespace braid::inline models {

const std::vector<ModelFamily>& model_families() {
  static const std::vector<ModelFamily> families = {
      llama_family(),  qwen2_family(),  qwen3_family(), mistral_family(), gemma_family(),
      gemma2_family(), gemma3_family(), phi3_family(),  gpt2_family()};
  return families;
}

const ModelFamily& family_of(const ModelSpec& spec) {
  for (const ModelFamily& family : model_families())
    if (family.name == spec.family) return family;
  check_failed(__FILE__, __LINE__, "known family", cat("no model family '", spec.family, "'"));
}

int64_t norms_of_layer(const TensorNames& names) {
  const std::string* norms[] = {&names.attention_norm, &names.attention_post_norm, &names.mlp_norm,
                                &names.mlp_post_norm};
  return std::count_if(std::begin(norms), std::end(norms),
                       [](const std::string* norm) { return !norm->empty(); });
}

bool joins_gate(const ModelSpec& spec) {
  return spec.gated_mlp && family_of(spec).names.up.size() == 1;
}

std::string layer_prefix(const ModelFamily& family, int64_t layer) {
  return cat(family.names.prefix, family.names.layer, layer, ".");
}

namespace {

using Init = TensorSpec::Init;

// Collects the tensors of a model in file order.
class TensorList {
 public:
  explicit TensorList(const ModelSpec& spec) : spec_(spec), names_(family_of(spec).names) {}

  void add(const std::string& name, std::vector<int64_t> shape, Init init = Init::kNormal) {
    tensors_.push_back({name, std::move(shape), false, init});
  }
  void add_norm(const std::string& module, int64_t width) {
    if (module.empty()) return;
    add(module + ".weight", {width}, spec_.norm_unit_offset ? Init::kZero : Init::kOne);
    if (spec_.norm == NormKind::kLayer) add(module + ".bias", {width}, Init::kZero);
  }
  void add_linear(const std::string& module, std::vector<int64_t> shape, bool bias,
                  Init init = Init::kNormal) {
    const int64_t rows = shape[0];
    tensors_.push_back({module + ".weight", std::move(shape), names_.transposed, init});
    if (bias) add(module + ".bias", {rows}, Init::kZero);
  }
  void add_attention(const std::string& at);
  void add_mlp(const std::string& at);
  std::vector<TensorSpec> take() { return std::move(tensors_); }

 private:
  const ModelSpec& spec_;
  const TensorNames& names_;
  std::vector<TensorSpec> tensors_;
};

// GPT-2 (Radford et al., 2019, §2.3) scales down the matrices that write to the residual stream.
Init residual_init(const ModelSpec& spec) {
  return spec.norm == NormKind::kLayer ? Init::kResidualNormal : Init::kNormal;
}

void TensorList::add_attention(const std::string& at) {
  const int64_t query_rows = spec_.heads * spec_.head_dim;
  const int64_t key_rows = spec_.kv_heads * spec_.head_dim;
  add_norm(at + names_.attention_norm, spec_.hidden);
  if (names_.qkv.size() == 1) {
    add_linear(at + names_.qkv[0], {query_rows + 2 * key_rows, spec_.hidden}, spec_.qkv_bias);
  } else {
    add_linear(at + names_.qkv[0], {query_rows, spec_.hidden}, spec_.qkv_bias);
    add_linear(at + names_.qkv[1], {key_rows, spec_.hidden}, spec_.qkv_bias);
    add_linear(at + names_.qkv[2], {key_rows, spec_.hidden}, spec_.qkv_bias);
  }
  if (spec_.qk_norm) {
    add_norm(at + names_.query_norm, spec_.head_dim);
    add_norm(at + names_.key_norm, spec_.head_dim);
  }
  add_linear(at + names_.output, {spec_.hidden, query_rows}, spec_.output_bias,
             residual_init(spec_));
  if (!names_.attention_post_norm.empty()) add_norm(at + names_.attention_post_norm, spec_.hidden);
}

void TensorList::add_mlp(const std::string& at) {
  add_norm(at + names_.mlp_norm, spec_.hidden);
  const int64_t up_rows = joins_gate(spec_) ? 2 * spec_.intermediate : spec_.intermediate;
  for (const std::string& module : names_.up)
    add_linear(at + module, {up_rows, spec_.hidden}, spec_.mlp_bias);
  add_linear(at + names_.down, {spec_.hidden, spec_.intermediate}, spec_.mlp_bias,
             residual_init(spec_));
  if (!names_.mlp_post_norm.empty()) add_norm(at + names_.mlp_post_norm, spec_.hidden);
}

}  // namespace

std::vector<TensorSpec> model_tensors(const ModelSpec& spec, int64_t begin, int64_t end) {
  const ModelFamily& family = family_of(spec);
  TensorList list(spec);
  if (begin == 0) {
    list.add(family.names.prefix + family.names.embedding, {spec.vocab, spec.hidden});
    if (spec.learned_positions > 0)
      list.add(family.names.prefix + family.names.positions, {spec.learned_positions, spec.hidden});
  }
  for (int64_t layer = begin; layer < end; ++layer) {
    list.add_attention(layer_prefix(family, layer));
    list.add_mlp(layer_prefix(family, layer));
  }
  if (end < spec.layers) return list.take();
  list.add_norm(family.names.prefix + family.names.final_norm, spec.hidden);
  if (spec.scalar_head) {
    list.add(kScoreName, {1, spec.hidden});
  } else if (!spec.tied_embeddings) {
    list.add(kLmHeadName, {spec.vocab, spec.hidden});
  } else if (begin > 0) {  // the last pipeline stage needs its own copy of a tied head
    list.add(family.names.prefix + family.names.embedding, {spec.vocab, spec.hidden});
  }
  if (spec.value_head) list.add(kScoreName, {1, spec.hidden});
  return list.take();
}

}  // namespace braid::inline models

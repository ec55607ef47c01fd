#include "nn/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "device/device_copy.h"
#include "models/adapter_targets.h"
#include "nn/decode_layers.h"
#include "nn/kernels/rotation.h"
#include "nn/zero_messages.h"

namespace braid::inline nn {

namespace {

std::vector<LayerRange> ranges_of(const ModelSpec& spec, const ModelOptions& options) {
  return options.ranges.empty() ? std::vector<LayerRange>{{0, spec.layers}} : options.ranges;
}

std::vector<std::string> linear_modules(const TensorNames& names) {
  std::vector<std::string> modules = names.qkv;
  modules.push_back(names.output);
  modules.insert(modules.end(), names.up.begin(), names.up.end());
  modules.push_back(names.down);
  return modules;
}

Status check_lora_target(const ModelSpec& spec, const std::string& target) {
  if (target == kAllLinear) return ok_status();
  if (target == kLmHeadModule) {
    if (!spec.tied_embeddings || spec.scalar_head) return ok_status();
    return invalid_input(
        "lora.targets: lm_head is the embedding's matrix in this model (tie_word_embeddings), so "
        "an adapter there would change both; leave it out");
  }
  std::vector<std::string> modules = linear_modules(family_of(spec).names);
  const bool found = std::any_of(modules.begin(), modules.end(), [&](const std::string& module) {
    return is_adapter_target("layer." + module, target);
  });
  if (found) return ok_status();
  for (const char* more : {kLmHeadModule, kAllLinear}) modules.emplace_back(more);
  return invalid_input(cat("lora.targets: '", target, "' names no module of ", spec.family,
                           "; modules: ", join(modules, ", ")));
}

// A rank beyond the smaller side of a matrix has more numbers than the matrix itself.
Status check_rank(const ModelSpec& spec, const LoraOptions& lora) {
  const int64_t most = std::min({spec.hidden, spec.heads * spec.head_dim, spec.intermediate});
  if (lora.rank <= most) return ok_status();
  return invalid_input(cat("lora.rank: ", lora.rank, " is more than ", most,
                           ", the smallest side of the model's matrices; 8 to 64 is usual, 0 "
                           "trains all weights"));
}

Status check_lora(const ModelSpec& spec, const LoraOptions& lora) {
  if (lora.rank < 0) return invalid_input(cat("lora.rank: ", lora.rank, "; 0 turns it off"));
  if (lora.rank == 0) return ok_status();
  if (lora.targets.empty())
    return invalid_input(
        "lora.targets: the list is empty, so nothing would be trained; write all-linear or names "
        "such as q_proj");
  for (const std::string& target : lora.targets) BRAID_TRY(check_lora_target(spec, target));
  return check_rank(spec, lora);
}

// Shapes by name, and the modules built from them; of tensors that are lent, over their memory.
class LayerBuilder {
 public:
  LayerBuilder(std::vector<TensorSpec> tensors, const at::TensorOptions& options,
               std::map<std::string, at::Tensor> lent)
      : options_(options), lent_(std::move(lent)) {
    for (TensorSpec& tensor : tensors) specs_[tensor.name] = std::move(tensor);
  }

  at::Tensor tensor(const std::string& name) const {
    if (const auto lent = lent_.find(name); lent != lent_.end()) return lent->second;
    const auto found = specs_.find(name);
    return found == specs_.end() ? at::Tensor() : at::empty(found->second.shape, options_);
  }
  NormWeights norm(const std::string& module) const {
    return {module, tensor(module + ".weight"), tensor(module + ".bias")};
  }
  LinearLayer linear(const std::string& at, const std::vector<std::string>& modules) const {
    LinearLayer layer;
    const TensorSpec& first = specs_.at(at + modules[0] + ".weight");
    layer.transposed = first.transposed;
    for (const std::string& module : modules) {
      LinearPart part;
      part.module = at + module;
      part.rows = specs_.at(part.module + ".weight").shape[0];
      layer.parts.push_back(std::move(part));
    }
    const bool bias = specs_.count(layer.parts[0].module + ".bias") > 0;
    layer.weight = lent_joined(layer, ".weight");
    layer.bias = lent_joined(layer, ".bias");
    allocate_linear(&layer, first.shape[1], bias, options_);
    return layer;
  }

 private:
  // The joined storage whose views the parts are; undefined where not all of them are lent.
  at::Tensor lent_joined(const LinearLayer& layer, const char* which) const {
    int64_t rows = 0;
    for (const LinearPart& part : layer.parts) {
      if (lent_.count(part.module + which) == 0) return {};
      rows += part.rows;
    }
    const at::Tensor& first = lent_.at(layer.parts[0].module + which);
    std::vector<int64_t> shape = first.sizes().vec();
    shape[0] = rows;
    return first.as_strided(shape, first.strides(), first.storage_offset());
  }

  at::TensorOptions options_;
  std::map<std::string, at::Tensor> lent_;
  std::map<std::string, TensorSpec> specs_;
};

DecoderLayer build_layer(const LayerBuilder& build, const TensorNames& names,
                         const std::string& at) {
  DecoderLayer layer;
  layer.attention_norm = build.norm(at + names.attention_norm);
  layer.query_norm = build.norm(at + names.query_norm);
  layer.key_norm = build.norm(at + names.key_norm);
  layer.mlp_norm = build.norm(at + names.mlp_norm);
  layer.attention_post_norm = build.norm(at + names.attention_post_norm);
  layer.mlp_post_norm = build.norm(at + names.mlp_post_norm);
  layer.qkv = build.linear(at, names.qkv);
  layer.output = build.linear(at, {names.output});
  layer.up = build.linear(at, names.up);
  layer.down = build.linear(at, {names.down});
  return layer;
}

void visit_norm(NormWeights& norm, const Decoder::Visit& visit) {
  if (norm.weight.defined()) visit(norm.module + ".weight", norm.weight);
  if (norm.bias.defined()) visit(norm.module + ".bias", norm.bias);
}

void visit_linear(LinearLayer& layer, const Decoder::Visit& visit) {
  for (LinearPart& part : layer.parts) {
    visit(part.module + ".weight", part.weight);
    if (part.bias.defined()) visit(part.module + ".bias", part.bias);
  }
}

// PEFT's name of A or B beside a module.
constexpr std::string_view kAdapterPrefix = "base_model.model.";
std::string adapter_name(const std::string& module, char which) {
  return cat(kAdapterPrefix, module, ".lora_", which, ".weight");
}

void drop_packed_layer(LinearLayer* layer) { layer->packed = {}; }

void visit_layer(DecoderLayer& layer, const Decoder::Visit& visit) {
  visit_norm(layer.attention_norm, visit);
  visit_linear(layer.qkv, visit);
  visit_norm(layer.query_norm, visit);
  visit_norm(layer.key_norm, visit);
  visit_linear(layer.output, visit);
  visit_norm(layer.attention_post_norm, visit);
  visit_norm(layer.mlp_norm, visit);
  visit_linear(layer.up, visit);
  visit_linear(layer.down, visit);
  visit_norm(layer.mlp_post_norm, visit);
}

}  // namespace

std::vector<LayerRange> Model::ranges() const { return ranges_of(spec_, options_); }

std::vector<TensorSpec> tensors_of(const ModelSpec& spec, const std::vector<LayerRange>& ranges) {
  std::vector<TensorSpec> out;
  std::set<std::string> known;  // both ends of a tied model have one matrix
  for (const LayerRange& range : ranges)
    for (TensorSpec& tensor : model_tensors(spec, range.begin, range.end))
      if (known.insert(tensor.name).second) out.push_back(std::move(tensor));
  return out;
}

Status Decoder::validate_options(const ModelSpec& spec, const ModelOptions& options) {
  int64_t before = 0;
  for (const LayerRange& range : ranges_of(spec, options)) {
    if (range.begin < before || range.end > spec.layers || range.begin >= range.end)
      return invalid_input(cat("layers ", range.begin, " to ", range.end, " of a model with ",
                               spec.layers, " layers"));
    before = range.end;
  }
  BRAID_TRY(check_tensor_parallel(spec, options.tensor_parallel));
  return check_lora(spec, options.lora);
}

Decoder::Decoder(const ModelSpec& spec, const ModelOptions& options, const Decoder* lender) {
  spec_ = spec;
  options_ = options;
  ranks_ = options.tensor_parallel;
  ranks_over_caches_ = over_caches(ranks_);
  local_spec_ = local_spec_of(spec, options.tensor_parallel);
  const auto tensor_options = at::TensorOptions().dtype(options.dtype).device(options.device);
  allocate(tensor_options, lender);
  if (options_.lora.rank > 0) add_adapters(tensor_options);
  find_shards();
  mark_trainable();
}

void Decoder::find_shards() {
  const TensorParallelGroup& group = options_.tensor_parallel;
  shards_ = tensor_shards(spec_, tensors(), group);
  const auto add_adapter = [&](const std::string& module) {
    const TensorShard& matrix = shards_.at(module + ".weight");
    shards_[adapter_name(module, 'A')] = lora_a_shard(matrix, options_.lora.rank, group);
    shards_[adapter_name(module, 'B')] = lora_b_shard(matrix, options_.lora.rank, group);
  };
  for (DecoderLayer& layer : layers_)
    visit_parts(layer, [&](const LinearLayer&, LinearPart& part) {
      if (!part.lora_a.defined()) return;
      const TensorShard& matrix = shards_.at(part.module + ".weight");
      const bool by_columns = matrix.dim == 1 && !matrix.pieces.empty();
      part.first_column = by_columns ? matrix.pieces[0].begin : 0;
      add_adapter(part.module);
    });
  if (head_lora_a_.defined()) add_adapter(kLmHeadModule);
}

std::map<std::string, at::Tensor> Decoder::lent_by(const Decoder& lender) const {
  std::map<std::string, at::Tensor> out;
  const auto wanted = tensor_shards(spec_, tensors(), options_.tensor_parallel);
  for (const auto& [name, tensor] : lender.parameters()) {
    const auto found = wanted.find(name);
    if (found == wanted.end()) continue;
    const TensorShard& held = lender.shards().at(name);
    if (found->second.dim == held.dim && found->second.pieces == held.pieces)
      out.emplace(name, tensor.detach());
  }
  return out;
}

void Decoder::allocate(const at::TensorOptions& tensor_options, const Decoder* lender) {
  const ModelFamily& family = family_of(spec_);
  const TensorNames& names = family.names;
  const LayerBuilder build(
      tensors_of(local_spec_, ranges()), tensor_options,
      lender == nullptr ? std::map<std::string, at::Tensor>() : lent_by(*lender));
  if (has_first()) {
    embedding_ = build.tensor(names.prefix + names.embedding);
    if (spec_.learned_positions > 0) positions_ = build.tensor(names.prefix + names.positions);
  }
  for (const LayerRange& range : ranges())
    for (int64_t layer = range.begin; layer < range.end; ++layer)
      layers_.push_back(build_layer(build, names, layer_prefix(family, layer)));
  if (!has_last()) return;
  final_norm_ = build.norm(names.prefix + names.final_norm);
  if (spec_.scalar_head) {
    head_ = build.tensor(kScoreName);
  } else if (!spec_.tied_embeddings) {
    head_ = build.tensor(kLmHeadName);
  } else if (!has_first()) {
    head_ = build.tensor(names.prefix + names.embedding);
  }
  if (spec_.value_head) value_ = build.tensor(kScoreName);
}

void Decoder::add_adapters(const at::TensorOptions& tensor_options) {
  const LoraOptions& lora = options_.lora;
  if (head_.defined() && !spec_.scalar_head && is_adapted(kLmHeadModule, lora.targets)) {
    head_lora_a_ = at::empty({lora.rank, head_.size(1)}, tensor_options);
    head_lora_b_ = at::empty({head_.size(0), lora.rank}, tensor_options);
  }
  for (DecoderLayer& layer : layers_)
    visit_parts(layer, [&](LinearLayer& linear, LinearPart& part) {
      if (!is_adapted(part.module, lora.targets)) return;
      part.lora_a = at::empty({lora.rank, linear.weight.size(1)}, tensor_options);
      part.lora_b = at::empty({part.rows, lora.rank}, tensor_options);
    });
}

void Decoder::mark_trainable() {
  const bool all = options_.lora.rank == 0;
  visit_base([&](const std::string& name, at::Tensor& tensor) {
    tensor.set_requires_grad(all || name == kScoreName);
  });
  visit_adapters([](const std::string&, at::Tensor& tensor) { tensor.set_requires_grad(true); });
}

void Decoder::visit_base(const Visit& visit) {
  const TensorNames& names = family_of(spec_).names;
  if (embedding_.defined()) visit(names.prefix + names.embedding, embedding_);
  if (positions_.defined()) visit(names.prefix + names.positions, positions_);
  for (DecoderLayer& layer : layers_) visit_layer(layer, visit);
  visit_norm(final_norm_, visit);
  const std::string lm_name =
      spec_.tied_embeddings ? names.prefix + names.embedding : std::string(kLmHeadName);
  if (head_.defined()) visit(spec_.scalar_head ? std::string(kScoreName) : lm_name, head_);
  if (value_.defined()) visit(kScoreName, value_);
}

void Decoder::visit_adapters(const Visit& visit) {
  for (DecoderLayer& layer : layers_)
    visit_parts(layer, [&](LinearLayer&, LinearPart& part) {
      if (!part.lora_a.defined()) return;
      visit(adapter_name(part.module, 'A'), part.lora_a);
      visit(adapter_name(part.module, 'B'), part.lora_b);
    });
  if (!head_lora_a_.defined()) return;
  visit(adapter_name(kLmHeadModule, 'A'), head_lora_a_);
  visit(adapter_name(kLmHeadModule, 'B'), head_lora_b_);
}

std::vector<Decoder::Named> Decoder::parameters() const {
  std::vector<Named> list;
  const Visit add = [&](const std::string& name, at::Tensor& tensor) {
    list.emplace_back(name, tensor);
  };
  auto* self = const_cast<Decoder*>(this);  // the visitor only reads
  self->visit_base(add);
  self->visit_adapters(add);
  return list;
}

std::vector<Decoder::Named> Decoder::merged_parameters() const {
  std::map<std::string, at::Tensor> merged;
  const double scale = options_.lora.rank > 0 ? options_.lora.alpha / options_.lora.rank : 0;
  for (const DecoderLayer& layer : layers_)
    visit_parts(layer, [&](const LinearLayer&, const LinearPart& part) {
      if (part.lora_a.defined()) merged[part.module + ".weight"] = merged_weight(part, scale);
    });
  if (head_lora_a_.defined()) {
    LinearPart head;
    head.weight = head_;
    head.lora_a = head_lora_a_;
    head.lora_b = head_lora_b_;
    merged[kLmHeadName] = merged_weight(head, scale);
  }
  std::vector<Named> list;
  const_cast<Decoder*>(this)->visit_base([&](const std::string& name, at::Tensor& tensor) {
    const auto found = merged.find(name);
    list.emplace_back(name, found == merged.end() ? tensor : found->second);
  });
  return list;
}

int64_t Decoder::unit_of(const std::string& name) const {
  const ModelFamily& family = family_of(spec_);
  const size_t begin = name.rfind(kAdapterPrefix, 0) == 0 ? kAdapterPrefix.size() : 0;
  int64_t unit = 0;
  for (const LayerRange& range : ranges())
    for (int64_t layer = range.begin; layer < range.end; ++layer) {
      const std::string prefix = layer_prefix(family, layer);
      ++unit;
      if (name.compare(begin, prefix.size(), prefix) == 0) return unit;
    }
  const TensorNames& names = family.names;
  const bool enters =
      name == names.prefix + names.embedding || name == names.prefix + names.positions;
  return enters && has_first() ? 0 : units() - 1;
}

bool Decoder::uses_unit(size_t range, int64_t unit) const {
  const auto [begin, end] = places_of(range);
  if (unit == 0) return ranges()[range].begin == 0;
  if (unit == units() - 1) return ranges()[range].end == spec_.layers;
  return unit > static_cast<int64_t>(begin) && unit <= static_cast<int64_t>(end);
}

std::pair<int64_t, int64_t> Decoder::units_of_layers(int64_t begin, int64_t end) const {
  int64_t before = 0;  // layers of the ranges before
  for (const LayerRange& range : ranges()) {
    if (begin >= range.begin && end <= range.end) {
      const int64_t first = before + begin - range.begin + 1;
      const int64_t last = first + end - begin;
      return {begin == 0 ? 0 : first, end == spec_.layers ? last + 1 : last};
    }
    before += range.end - range.begin;
  }
  BRAID_CHECK(false, cat("layers ", begin, " to ", end, " are not in one of the model's ranges"));
}

void Decoder::detach_leaves() {
  const Visit detach = [](const std::string&, at::Tensor& tensor) {
    const bool trainable = tensor.requires_grad();
    tensor = tensor.detach();
    tensor.set_requires_grad(trainable);
  };
  visit_base(detach);
  visit_adapters(detach);
  drop_packed();
}

void Decoder::clone_storage() {
  visit_adapters([](const std::string&, at::Tensor& tensor) { tensor = tensor.detach().clone(); });
  replace_storage([](const at::Tensor& tensor, int64_t) { return tensor.clone(); });
}

void Decoder::replace_storage(const Place& place) {
  int64_t at = kNoLayer;
  const auto replace = [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = place(tensor.detach(), at);
  };
  for (at::Tensor* tensor :
       {&embedding_, &positions_, &head_, &value_, &final_norm_.weight, &final_norm_.bias})
    replace(*tensor);
  for (DecoderLayer& layer : layers_) {
    ++at;
    visit_norms(layer, [&](NormWeights& norm) {
      replace(norm.weight);
      replace(norm.bias);
    });
    for (LinearLayer* linear : {&layer.qkv, &layer.output, &layer.up, &layer.down}) {
      replace(linear->weight);
      replace(linear->bias);
      bind_parts(linear);
    }
  }
  mark_trainable();
}

void Decoder::become_role(const ModelOptions& options, bool scalar_head) {
  options_ = options;
  adapters_on_ = true;
  for (DecoderLayer& layer : layers_)
    visit_parts(layer, [](LinearLayer&, LinearPart& part) {
      part.lora_a = at::Tensor();
      part.lora_b = at::Tensor();
    });
  head_lora_a_ = at::Tensor();
  head_lora_b_ = at::Tensor();
  const auto tensor_options = at::TensorOptions().dtype(options.dtype).device(options.device);
  if (scalar_head) {
    if (has_last())
      head_ =
          spec_.scalar_head ? head_.detach().clone() : at::zeros({1, spec_.hidden}, tensor_options);
    spec_.scalar_head = true;
    spec_.architecture = family_of(spec_).score_architecture;
    local_spec_ = local_spec_of(spec_, options_.tensor_parallel);
  }
  if (options_.lora.rank > 0) add_adapters(tensor_options);
  find_shards();
  detach_leaves();
  mark_trainable();
}

double Decoder::lora_scale() const {
  const bool on = adapters_on_ && options_.lora.rank > 0;
  return on ? options_.lora.alpha / static_cast<double>(options_.lora.rank) : 0;
}

at::Tensor Decoder::head_weight() const {
  BRAID_CHECK(has_last(), "only the last range of layers has a head");
  const at::Tensor& head = head_.defined() ? head_ : embedding_;
  const double scale = lora_scale();
  if (!head_lora_a_.defined() || scale == 0) return head;
  if (at::GradMode::is_enabled()) return head + at::mm(head_lora_b_, head_lora_a_) * scale;
  if (!adapted_head_.defined()) adapted_head_ = head + at::mm(head_lora_b_, head_lora_a_) * scale;
  return adapted_head_;
}

at::Tensor Decoder::value_weight() const {
  if (!spec_.value_head) return Model::value_weight();
  BRAID_CHECK(has_last(), "only the last range of layers has a head");
  return value_;
}

void Decoder::drop_packed() {
  adapted_head_ = at::Tensor();
  head_packed_ = {};
  base_head_packed_ = {};
  for (DecoderLayer& layer : layers_) visit_linears(layer, drop_packed_layer);
}

const PackedLinear& Decoder::packed_head() {
  PackedLinear& packed = lora_scale() == 0 ? base_head_packed_ : head_packed_;
  if (!packed.forward.defined()) packed = pack_linear(head_weight().detach(), false);
  return packed;
}

void Decoder::weights_changed() {
  drop_packed();
  for (DecoderLayer& layer : layers_)
    visit_parts(layer, [](LinearLayer& linear, LinearPart& part) {
      BRAID_CHECK(part.weight.is_alias_of(linear.weight),
                  part.module + ": parameters must be changed in place");
    });
}

at::Tensor Decoder::embed(const TokenBatch& batch, const TensorParallelGroup& group) const {
  BRAID_CHECK(embedding_.defined(), "a range that starts above layer 0 needs hidden states");
  at::Tensor h = group.tp_size == 1
                     ? at::embedding(embedding_, batch.tokens_T)
                     : embed_shared(embedding_, units_of_rank(spec_.vocab, group).begin,
                                    batch.tokens_T, group);
  // As in transformers, the factor is rounded to the dtype of the weights.
  if (spec_.scale_embedding)
    h = h * at::full({}, std::sqrt(static_cast<double>(spec_.hidden)), h.options());
  if (positions_.defined()) {
    const at::Tensor rows = keep_rows(batch.positions_T.unsqueeze(1), group).squeeze(1);
    h = h + at::embedding(positions_, rows);
  }
  return h;
}

void Decoder::grow_ropes(const AttentionBatch& batch) {
  if (spec_.rope.kind == RopeSpec::Kind::kNone) return;
  int64_t needed = 1;
  for (size_t s = 0; s < batch.cached.size(); ++s) needed = std::max(needed, batch.length(s));
  if (rope_.defined() && rope_.size(0) >= needed) return;
  int64_t rows = 256;
  while (rows < needed) rows *= 2;
  const auto table = [&](const RopeSpec& rope) {
    return to_device(rope_table(rope, spec_.head_dim, rows), options_.device);
  };
  rope_ = table(spec_.rope);
  window_rope_ = spec_.window_rope ? table(*spec_.window_rope) : rope_;
}

Decoder::LayerContexts Decoder::layer_contexts(const TokenBatch& batch, bool training,
                                               bool cached) {
  grow_ropes(batch.attention);
  LayerContexts out;
  LayerContext& context = out.full;
  context.spec = &local_spec_;
  context.tensor_parallel = &ranks_of(cached);
  context.rows = batch.tokens_T.size(0);
  const auto rotation = [&](const at::Tensor& table) {
    return table.defined() && !table.is_cpu() ? rotation_rows(table, batch.positions_T) : table;
  };
  context.rope = rotation(rope_);
  context.positions_T = batch.positions_T;
  context.adapters.scale = lora_scale();
  if (training && options_.lora.dropout > 0 && context.adapters.scale != 0)
    context.adapters.dropout = std::make_shared<const AdapterDropout>(
        adapter_dropout(batch, options_.lora.dropout, dropout_seed_));
  context.attention_twice = training && options_.kept == KeptActivations::kWithoutAttention;
  if (options_.kept == KeptActivations::kAll) {
    // Not owned: it need only live as long as this forward.
    context.attention =
        std::shared_ptr<const AttentionBatch>(std::shared_ptr<void>(), &batch.attention);
  } else {
    context.attention = std::make_shared<const AttentionBatch>(batch.attention);
  }
  if (spec_.sliding_window == 0) return out;
  out.windowed = context;
  if (spec_.window_rope) out.windowed.rope = rotation(window_rope_);
  auto attention = std::make_shared<AttentionBatch>(batch.attention);
  attention->window = spec_.sliding_window;
  out.windowed.attention = std::move(attention);
  return out;
}

namespace {

// Something to do in a backward, in the form that an autograd context can hold.
struct Deed : torch::CustomClassHolder {
  explicit Deed(std::function<void()> act) : act(std::move(act)) {}
  std::function<void()> act;
};

struct DoInBackward : torch::autograd::Function<DoInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& x,
                            const c10::intrusive_ptr<Deed>& deed) {
    saved->saved_data["deed"] = c10::IValue::make_capsule(deed);
    return x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& grads) {
    const auto capsule = saved->saved_data["deed"].toCapsule();
    static_cast<const Deed&>(*capsule).act();
    return {grads[0], at::Tensor()};
  }
};

// x, whose backward first does something.
at::Tensor in_backward(const at::Tensor& x, std::function<void()> act) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return x;
  return DoInBackward::apply(x, c10::make_intrusive<Deed>(std::move(act)));
}

}  // namespace

void Decoder::hold_head() {
  if (keeper_ == nullptr || !has_last()) return;
  keeper_->bring(units() - 1);
  if (!head_.defined()) keeper_->bring(0);
}

void Decoder::let_go() {
  if (keeper_ == nullptr) return;
  drop_packed();
  for (int64_t unit = 0; unit < units(); ++unit) keeper_->leave(unit);
}

void Decoder::rest() {
  drop_packed();
  let_go();
}

void Decoder::pass_by(const PassedBy& pass) {
  if (keeper_ == nullptr && (pass.rows == 0 || options_.tensor_parallel.tp_size == 1)) return;
  pass.backward ? pass_by_backward(pass) : pass_by_forward(pass);
  let_go();
}

void Decoder::pass_by_unit(int64_t unit, int64_t next, const PassedBy& pass,
                           const std::function<void()>& messages) {
  begin_unit(unit);
  bring(unit, next);
  messages();
  if (keeper_ == nullptr) return;
  keeper_->leave(unit);
  if (pass.passed) pass.passed(unit);
}

void Decoder::pass_by_forward(const PassedBy& pass) {
  const ZeroMessages zeros(spec_, options_, ranks_of(pass.cached), pass.rows);
  const auto [begin, end] = places_of(pass.range);
  if (ranges()[pass.range].begin == 0) pass_by_unit(0, 1, pass, [&] { zeros.enter_model(); });
  for (size_t i = begin; i < end; ++i)
    pass_by_unit(static_cast<int64_t>(i) + 1, unit_after(i, pass.range), pass,
                 [&] { zeros.pass_layer(); });
  if (ranges()[pass.range].end < spec_.layers) return;
  begin_unit(units() - 1);
  hold_head();
  zeros.leave_layers();
  if (pass.head_rows) zeros.pass_head(*pass.head_rows);
}

// Of each layer of the pass. What comes from another range records gradients.
std::vector<LayerGradients> Decoder::gradients_of(const PassedBy& pass) const {
  const auto [begin, end] = places_of(pass.range);
  bool recorded = ranges()[pass.range].begin > 0 || embedding_.requires_grad();
  std::vector<LayerGradients> out;
  for (size_t i = begin; i < end; ++i) {
    out.push_back(layer_gradients(layers_[i], recorded));
    recorded = out.back().output;
  }
  return out;
}

void Decoder::pass_by_backward(const PassedBy& pass) {
  const ZeroMessages zeros(spec_, options_, ranks_of(pass.cached), pass.rows);
  const auto [begin, end] = places_of(pass.range);
  if (ranges()[pass.range].end == spec_.layers) {
    hold_head();
    if (pass.head_rows) zeros.return_head(*pass.head_rows);
    if (keeper_ != nullptr && pass.passed) pass.passed(units() - 1);
  }
  const std::vector<LayerGradients> gradients = gradients_of(pass);
  for (size_t i = end; i > begin; --i) {
    const LayerGradients& of = gradients[i - 1 - begin];
    if (!of.output) return;  // nothing below is trained
    const bool goes_on = i - 1 > begin && of.input;
    pass_by_unit(static_cast<int64_t>(i), goes_on ? static_cast<int64_t>(i) - 1 : kNoUnit, pass,
                 [&] {
                   const bool again = options_.kept == KeptActivations::kInputs;
                   if (again) zeros.pass_layer();
                   zeros.return_layer(again ? LayerGradients{true, true, true} : of);
                 });
  }
  if (ranges()[pass.range].begin == 0 && gradients.front().input) zeros.return_to_model();
}

at::Tensor Decoder::enter(const TokenBatch& batch, bool cached) {
  begin_unit(0);
  if (keeper_ == nullptr) return embed(batch, ranks_of(cached));
  bring(0, 1);
  const at::Tensor h = embed(batch, ranks_of(cached));
  keeper_->leave(0);  // a backward needs no more than its shape
  return h;
}

at::Tensor Decoder::pass_layer(size_t index, const LayerContext& context, const at::Tensor& h,
                               const KvLayer* cache) {
  const bool training = at::GradMode::is_enabled() && cache == nullptr;
  if (keeper_ == nullptr && (keep_packed_ || cache != nullptr))
    visit_linears(layers_[index], [&](LinearLayer* linear) { pack_layer(linear, training); });
  else if (training)
    visit_linears(layers_[index], drop_packed_layer);
  return training && options_.kept == KeptActivations::kInputs
             ? run_layer_recomputed(layers_[index], context, h)
             : run_layer(layers_[index], context, h, cache);
}

void Decoder::bring(int64_t unit, int64_t next) {
  if (keeper_ == nullptr) return;
  keeper_->bring(unit);
  if (next == kNoUnit) return;
  begin_unit(next);
  keeper_->expect(next);
}

// The unit that a forward uses after the layer at this place.
int64_t Decoder::unit_after(size_t index, size_t range) const {
  const bool ends = index + 1 == places_of(range).second && ranges()[range].end < spec_.layers;
  return ends ? kNoUnit : static_cast<int64_t>(index) + 2;
}

// A layer whose weights are here for its forward, and again for its backward, while those of the
// layer that comes next are on their way.
at::Tensor Decoder::pass_kept_layer(size_t index, size_t range, const LayerContext& context,
                                    const at::Tensor& h, const KvLayer* cache) {
  const auto unit = static_cast<int64_t>(index) + 1;
  bring(unit, unit_after(index, range));
  at::Tensor out = in_backward(h, [keeper = keeper_, unit] { keeper->leave(unit); });
  out = pass_layer(index, context, out, cache);
  keeper_->leave(unit);
  // Below the first layer that trains, or that this rank has, a backward brings nothing.
  const bool goes_on = index > places_of(range).first && h.requires_grad();
  return in_backward(out, [this, unit, next = goes_on ? unit - 1 : kNoUnit] { bring(unit, next); });
}

std::pair<size_t, size_t> Decoder::places_of(size_t range) const {
  const std::vector<LayerRange> all = ranges();
  BRAID_CHECK(range < all.size(), cat("range ", range, " of ", all.size()));
  size_t begin = 0;
  for (size_t before = 0; before < range; ++before) begin += all[before].end - all[before].begin;
  return {begin, begin + all[range].end - all[range].begin};
}

at::Tensor Decoder::pass_layers(size_t range, const LayerContexts& contexts, at::Tensor h,
                                const std::vector<KvLayer>* kv) {
  const std::pair<size_t, size_t> places = places_of(range);
  const bool all_here =
      keeper_ == nullptr && places == std::pair<size_t, size_t>(0, layers_.size());
  if (kv != nullptr && all_here) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      begin_unit(static_cast<int64_t>(i) + 1);
      visit_linears(layers_[i], [](LinearLayer* linear) { pack_layer(linear, false); });
    }
    const at::Tensor stepped = run_decode_step(layers_, context_of(0, contexts), h, *kv);
    if (stepped.defined()) return stepped;
  }
  for (size_t i = places.first; i < places.second; ++i) {
    begin_unit(static_cast<int64_t>(i) + 1);
    const KvLayer* cache = kv == nullptr ? nullptr : &(*kv)[i - places.first];
    const int64_t layer = ranges()[range].begin + static_cast<int64_t>(i - places.first);
    const LayerContext& context = context_of(layer, contexts);
    h = keeper_ != nullptr ? pass_kept_layer(i, range, context, h, cache)
                           : pass_layer(i, context, h, cache);
    if (kv == nullptr && layer_done_) layer_done_();
  }
  return h;
}

at::Tensor Decoder::forward(const TokenBatch& batch, const std::vector<KvLayer>* kv,
                            const at::Tensor& hidden_in, size_t range) {
  const std::pair<size_t, size_t> places = places_of(range);
  BRAID_CHECK(kv == nullptr || kv->size() == places.second - places.first,
              "one cache entry per layer");
  // Nothing is recorded: operators need not pass the layers of the dispatcher that would.
  std::optional<at::AutoDispatchBelowADInplaceOrView> unrecorded;
  if (!at::GradMode::is_enabled()) unrecorded.emplace();
  const bool cached = kv != nullptr;
  at::Tensor h = hidden_in.defined() ? hidden_in : enter(batch, cached);
  const LayerContexts contexts =
      layer_contexts(batch, at::GradMode::is_enabled() && !cached, cached);
  h = pass_layers(range, contexts, h, kv);
  if (ranges()[range].end < spec_.layers) return h;
  begin_unit(units() - 1);
  hold_head();
  return gather_rows(apply_norm(final_norm_, spec_, h), batch.tokens_T.size(0), ranks_of(cached));
}

Status check_model_options(const ModelSpec& spec, const ModelOptions& options) {
  return Decoder::validate_options(spec, options);
}

}  // namespace braid::inline nn

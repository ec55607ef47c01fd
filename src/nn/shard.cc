#include "nn/shard.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace braid::inline nn {
namespace {

// How a tensor of one place in the network is cut.
enum class ShardRule {
  kWhole,
  kVocabulary,
  kQuery,
  kKeyValue,
  kFused,
  kHeadNorm,
  kOutput,
  kUp,
  kGateUp,
  kDown
};

bool is_layer_tensor(const std::string& name, const ModelFamily& family, std::string* inner) {
  const std::string start = family.names.prefix + family.names.layer;
  if (name.rfind(start, 0) != 0) return false;
  *inner = name.substr(name.find('.', start.size()) + 1);
  return true;
}

ShardRule rule_of(const std::string& name, const ModelSpec& spec) {
  const ModelFamily& family = family_of(spec);
  const TensorNames& names = family.names;
  if (name == names.prefix + names.embedding || name == kLmHeadName) return ShardRule::kVocabulary;
  std::string inner;
  if (!is_layer_tensor(name, family, &inner)) return ShardRule::kWhole;
  const std::string module = inner.substr(0, inner.rfind('.'));
  const bool matrix = inner.size() > 7 && inner.compare(inner.size() - 7, 7, ".weight") == 0;
  if (module == names.qkv[0]) return names.qkv.size() == 1 ? ShardRule::kFused : ShardRule::kQuery;
  if (std::find(names.qkv.begin(), names.qkv.end(), module) != names.qkv.end())
    return ShardRule::kKeyValue;
  if (module == names.query_norm || module == names.key_norm) return ShardRule::kHeadNorm;
  if (std::find(names.up.begin(), names.up.end(), module) != names.up.end())
    return joins_gate(spec) ? ShardRule::kGateUp : ShardRule::kUp;
  // The bias of what is summed over the ranks is added once, after the sum.
  if (module == names.output && matrix) return ShardRule::kOutput;
  if (module == names.down && matrix) return ShardRule::kDown;
  return ShardRule::kWhole;
}

IndexRange scaled(const IndexRange& units, int64_t width, int64_t offset = 0) {
  return {offset + units.begin * width, offset + units.end * width};
}

class ShardMaker {
 public:
  ShardMaker(const ModelSpec& spec, const TensorParallelGroup& group)
      : spec_(spec),
        group_(group),
        heads_(units_of_rank(spec.heads, group)),
        kv_heads_(units_of_rank(spec.kv_heads, group)) {}

  TensorShard make(const TensorSpec& tensor) const {
    TensorShard shard;
    shard.whole = tensor.shape;
    TensorShard slice = shard;
    cut(rule_of(tensor.name, spec_), &slice);
    shard.dim = slice.dim;
    if (group_.tp_size == 1) return shard;
    shard = std::move(slice);
    if (shard.pieces.empty()) {
      shard.holders = group_.tp_size;
      shard.holder = group_.tp_rank;
      // Each rank sees its own rows of what is normalized, or its own heads.
      if (group_.sequence_parallel && tensor.name != kScoreName)
        shard.partial = PartialGradient::kTensor;
    }
    return shard;
  }

 private:
  void cut(ShardRule rule, TensorShard* shard) const {
    const int64_t head = spec_.head_dim;
    switch (rule) {
      case ShardRule::kWhole:
        return;
      case ShardRule::kHeadNorm:
        shard->partial = PartialGradient::kTensor;
        return;
      case ShardRule::kVocabulary:
        shard->pieces = {units_of_rank(spec_.vocab, group_)};
        return;
      case ShardRule::kQuery:
        shard->pieces = {scaled(heads_, head)};
        return;
      case ShardRule::kKeyValue:
        shard->pieces = {scaled(kv_heads_, head)};
        share_heads(shard);
        return;
      case ShardRule::kFused: {
        const int64_t keys = spec_.heads * head, values = keys + spec_.kv_heads * head;
        shard->pieces = {scaled(heads_, head), scaled(kv_heads_, head, keys),
                         scaled(kv_heads_, head, values)};
        return;
      }
      case ShardRule::kOutput:
        shard->dim = 1;
        shard->pieces = {scaled(heads_, head)};
        return;
      case ShardRule::kGateUp: {
        const IndexRange columns = units_of_rank(spec_.intermediate, group_);
        shard->pieces = {columns, scaled(columns, 1, spec_.intermediate)};
        return;
      }
      case ShardRule::kUp:
      case ShardRule::kDown:
        shard->dim = rule == ShardRule::kDown ? 1 : 0;
        shard->pieces = {units_of_rank(spec_.intermediate, group_)};
        return;
    }
  }

  void share_heads(TensorShard* shard) const {
    if (group_.tp_size <= spec_.kv_heads) return;
    shard->holders = group_.tp_size / spec_.kv_heads;
    shard->holder = group_.tp_rank % shard->holders;
    shard->partial = PartialGradient::kShared;
  }

  const ModelSpec& spec_;
  const TensorParallelGroup& group_;
  IndexRange heads_, kv_heads_;
};

int64_t total_size(const std::vector<IndexRange>& pieces) {
  int64_t size = 0;
  for (const IndexRange& piece : pieces) size += piece.size();
  return size;
}

// On every rank of the group whole, each with a part of the gradient.
TensorShard whole_with_partial(TensorShard shard, const TensorParallelGroup& group) {
  shard.pieces.clear();
  shard.holders = group.tp_size;
  shard.holder = group.tp_rank;
  shard.partial = PartialGradient::kTensor;
  return shard;
}

}  // namespace

IndexRange units_of_rank(int64_t n, const TensorParallelGroup& group) {
  const int64_t begin = n * group.tp_rank / group.tp_size;
  return {begin, std::max(n * (group.tp_rank + 1) / group.tp_size, begin + 1)};
}

std::vector<int64_t> TensorShard::local_shape() const {
  std::vector<int64_t> shape = whole;
  if (!pieces.empty()) shape[dim] = total_size(pieces);
  return shape;
}

Status check_tensor_parallel(const ModelSpec& spec, const TensorParallelGroup& group) {
  const int64_t tp = group.tp_size;
  if (tp < 1 || group.tp_rank < 0 || group.tp_rank >= tp)
    return invalid_input(cat("tensor parallelism: rank ", group.tp_rank, " of ", tp));
  if (tp == 1) return ok_status();
  const std::string what = cat("tensor parallelism over ", tp, " ranks");
  if (spec.heads % tp != 0)
    return invalid_input(cat(what, ": the model has ", spec.heads,
                             " attention heads; choose a number that divides them"));
  if (spec.kv_heads % tp != 0 && tp % spec.kv_heads != 0)
    return invalid_input(cat(what, ": the model has ", spec.kv_heads,
                             " key-value heads; one number must divide the other"));
  if (spec.intermediate < tp || spec.vocab < tp)
    return invalid_input(cat(what, ": the MLP has ", spec.intermediate, " columns"));
  const bool shares = tp > spec.kv_heads;
  if (shares && family_of(spec).names.qkv.size() == 1)
    return invalid_input(cat(what, ": more ranks than key-value heads, which ", spec.family,
                             " keeps in one matrix with the queries"));
  if (group.communicator == nullptr || (shares && group.shared == nullptr))
    return invalid_input(cat(what, " needs their communicators"));
  return ok_status();
}

ModelSpec local_spec_of(const ModelSpec& spec, const TensorParallelGroup& group) {
  ModelSpec local = spec;
  local.heads = units_of_rank(spec.heads, group).size();
  local.kv_heads = units_of_rank(spec.kv_heads, group).size();
  local.intermediate = units_of_rank(spec.intermediate, group).size();
  local.vocab = units_of_rank(spec.vocab, group).size();
  return local;
}

std::map<std::string, TensorShard> tensor_shards(const ModelSpec& spec,
                                                 const std::vector<TensorSpec>& tensors,
                                                 const TensorParallelGroup& group) {
  const ShardMaker maker(spec, group);
  std::map<std::string, TensorShard> out;
  for (const TensorSpec& tensor : tensors) out[tensor.name] = maker.make(tensor);
  return out;
}

TensorShard lora_a_shard(const TensorShard& matrix, int64_t lora_rank,
                         const TensorParallelGroup& group) {
  TensorShard out = matrix;
  out.whole = {lora_rank, matrix.whole[1]};
  out.partial = PartialGradient::kNone;
  if (matrix.pieces.empty() || matrix.dim == 1) return out;
  // A of a matrix cut by rows is whole on every rank, and each sees the gradient through its rows.
  return whole_with_partial(std::move(out), group);
}

TensorShard lora_b_shard(const TensorShard& matrix, int64_t lora_rank,
                         const TensorParallelGroup& group) {
  TensorShard out = matrix;
  out.whole = {matrix.whole[0], lora_rank};
  if (matrix.pieces.empty() || matrix.dim == 0) return out;
  out.dim = 0;
  return whole_with_partial(std::move(out), group);
}

at::Tensor take_shard(const at::Tensor& whole, const TensorShard& shard) {
  if (shard.pieces.empty()) return whole;
  std::vector<at::Tensor> parts;
  for (const IndexRange& piece : shard.pieces)
    parts.push_back(whole.narrow(shard.dim, piece.begin, piece.size()));
  return parts.size() == 1 ? parts[0] : at::cat(parts, shard.dim);
}

}  // namespace braid::inline nn

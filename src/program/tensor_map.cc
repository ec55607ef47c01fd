#include "program/tensor_map.h"

#include <algorithm>

#include "base/text.h"
#include "models/adapter_targets.h"

namespace braid::inline program {
namespace {

// PEFT's names of an adapter.
constexpr const char *kA = ".lora_A.weight", *kB = ".lora_B.weight";
constexpr const char* kAdapterPrefix = "base_model.model.";

TensorPiece cut_rows(std::string name, int64_t rows, int64_t columns, int64_t units) {
  return {std::move(name), rows, columns, false, 0, rows / units};
}

TensorPiece whole_tensor(std::string name, int64_t rows, int64_t columns = 1) {
  return {std::move(name), rows, columns, false, 0, rows};
}

// Collects the kinds of a model.
class MapBuilder {
 public:
  explicit MapBuilder(const ModelSpec& spec) : spec_(spec), names_(family_of(spec).names) {
    map_.layer_prefix_begin = names_.prefix + names_.layer;
    map_.layer_prefix_end = ".";
  }

  void add(const char* name, int64_t units, std::vector<TensorPiece> pieces, bool partial = false) {
    add_kind({name, 0, units, 0, static_cast<int32_t>(spec_.layers), false, false},
             std::move(pieces), partial);
  }
  void add_end(const char* name, int64_t units, std::vector<TensorPiece> pieces, bool first,
               bool last, bool partial = false) {
    add_kind({name, 0, units, 0, 0, first, last}, std::move(pieces), partial);
  }

  TensorMap weights();
  TensorMap adapters(int64_t rank, const std::vector<std::string>& targets);

 private:
  void add_kind(TensorKind kind, std::vector<TensorPiece> pieces, bool partial) {
    for (const TensorPiece& piece : pieces)
      kind.elements +=
          kind.units * piece.per_unit * (piece.by_columns ? piece.rows : piece.columns);
    kind.partial = partial;
    if (kind.elements > 0) map_.kinds.push_back({std::move(kind), std::move(pieces)});
  }
  int64_t query_rows() const { return spec_.heads * spec_.head_dim; }
  int64_t key_rows() const { return spec_.kv_heads * spec_.head_dim; }
  // All ranks hold it, and each computes its gradient from its own query heads.
  bool one_key_head() const { return spec_.kv_heads == 1; }
  bool joined() const { return names_.qkv.size() == 1; }

  // Rows of q (part 0), k (1) or v (2) of a tensor beside the projection, `columns` wide.
  TensorPiece projection(int part, const std::string& end, int64_t columns) const {
    const int64_t rows = part == 0 ? query_rows() : key_rows();
    TensorPiece piece{
        names_.qkv[joined() ? 0 : part] + end, rows, columns, false, 0, spec_.head_dim};
    if (!joined()) return piece;
    piece.rows = query_rows() + 2 * key_rows();
    piece.first = part == 0 ? 0 : query_rows() + (part - 1) * key_rows();
    return piece;
  }
  std::vector<TensorPiece> projections(std::initializer_list<int> parts) const {
    std::vector<TensorPiece> out;
    for (const int part : parts) out.push_back(projection(part, ".weight", spec_.hidden));
    for (const int part : parts)
      if (spec_.qkv_bias) out.push_back(projection(part, ".bias", 1));
    return out;
  }
  std::vector<TensorPiece> norm(const std::string& module, int64_t width) const {
    std::vector<TensorPiece> out;
    if (module.empty()) return out;
    out.push_back(whole_tensor(module + ".weight", width));
    if (spec_.norm == NormKind::kLayer) out.push_back(whole_tensor(module + ".bias", width));
    return out;
  }
  void add_scalar_head() {
    add_end("scalar_head", 1, {whole_tensor(kScoreName, 1, spec_.hidden)}, false, true);
  }
  void add_adapter_ends(int64_t rank, bool head);
  void add_ends();
  std::vector<TensorPiece> up_rows(const std::string& end, int64_t columns) const;
  void add_mlp();
  void add_whole();

  const ModelSpec& spec_;
  const TensorNames& names_;
  TensorMap map_;
};

// Rows of gate and up (or of what stands for them) of tensors beside their matrices, `columns`
// wide.
std::vector<TensorPiece> MapBuilder::up_rows(const std::string& end, int64_t columns) const {
  const int64_t inner = spec_.intermediate;
  std::vector<TensorPiece> out;
  for (const std::string& module : names_.up)
    out.push_back(cut_rows(module + end, inner, columns, inner));
  if (!joins_gate(spec_)) return out;
  out.push_back(out[0]);
  for (TensorPiece& piece : out) piece.rows = 2 * inner;
  out[1].first = inner;
  return out;
}

void MapBuilder::add_mlp() {
  std::vector<TensorPiece> pieces = up_rows(".weight", spec_.hidden);
  pieces.push_back({names_.down + ".weight", spec_.hidden, spec_.intermediate, true, 0, 1});
  if (spec_.mlp_bias)
    for (TensorPiece& piece : up_rows(".bias", 1)) pieces.push_back(std::move(piece));
  add("mlp", spec_.intermediate, std::move(pieces));
}

// What every tensor-parallel rank has whole.
void MapBuilder::add_whole() {
  std::vector<TensorPiece> norms = norm(names_.attention_norm, spec_.hidden);
  for (const std::string* module :
       {&names_.mlp_norm, &names_.attention_post_norm, &names_.mlp_post_norm})
    for (const TensorPiece& piece : norm(*module, spec_.hidden)) norms.push_back(piece);
  if (spec_.output_bias) norms.push_back(whole_tensor(names_.output + ".bias", spec_.hidden));
  if (spec_.mlp_bias) norms.push_back(whole_tensor(names_.down + ".bias", spec_.hidden));
  add("norms", 1, std::move(norms));
}

void MapBuilder::add_ends() {
  add_end("final_norm", 1, norm(names_.prefix + names_.final_norm, spec_.hidden), false, true);
  if (spec_.scalar_head) {
    add_scalar_head();
  } else if (!spec_.tied_embeddings) {
    add_end("head", spec_.vocab, {cut_rows(kLmHeadName, spec_.vocab, spec_.hidden, spec_.vocab)},
            false, true);
  }
  if (spec_.value_head) add_scalar_head();
}

TensorMap MapBuilder::weights() {
  add_end("embedding", spec_.vocab,
          {cut_rows(names_.prefix + names_.embedding, spec_.vocab, spec_.hidden, spec_.vocab)},
          true, spec_.tied_embeddings && !spec_.scalar_head);
  if (spec_.learned_positions > 0)
    add_end("positions", 1,
            {whole_tensor(names_.prefix + names_.positions, spec_.learned_positions, spec_.hidden)},
            true, false);
  add("query", spec_.heads, projections({0}));
  add("key_value", spec_.kv_heads, projections({1, 2}), one_key_head());
  add("output", spec_.heads,
      {{names_.output + ".weight", spec_.hidden, query_rows(), true, 0, spec_.head_dim}});
  add_mlp();
  add_whole();
  add_ends();
  if (spec_.qk_norm) {
    std::vector<TensorPiece> norms = norm(names_.query_norm, spec_.head_dim);
    for (const TensorPiece& piece : norm(names_.key_norm, spec_.head_dim)) norms.push_back(piece);
    add("query_key_norms", 1, std::move(norms), true);
  }
  return std::move(map_);
}

// B is cut by rows where its matrix is, A by columns where its matrix is; the other one is whole,
// and each rank computes a part of its gradient.
TensorMap MapBuilder::adapters(int64_t rank, const std::vector<std::string>& targets) {
  const int64_t inner = spec_.intermediate;
  const auto adapted = [&](const TensorPiece& piece) {
    return is_adapted("layer." + piece.name.substr(0, piece.name.rfind(".lora_")), targets);
  };
  const auto add_adapted = [&](const char* name, int64_t units, std::vector<TensorPiece> pieces,
                               bool partial) {
    std::erase_if(pieces, [&](const TensorPiece& piece) { return !adapted(piece); });
    add(name, units, std::move(pieces), partial);
  };
  map_.layer_prefix_begin = kAdapterPrefix + map_.layer_prefix_begin;
  add_adapted("query_adapter", spec_.heads, {projection(0, kB, rank)}, false);
  add_adapted("key_value_adapter", spec_.kv_heads,
              {projection(1, kB, rank), projection(2, kB, rank)}, one_key_head());
  add_adapted("output_adapter", spec_.heads,
              {{names_.output + kA, rank, query_rows(), true, 0, spec_.head_dim}}, false);
  std::vector<TensorPiece> mlp = up_rows(kB, rank), whole;
  mlp.push_back({names_.down + kA, rank, inner, true, 0, 1});
  add_adapted("mlp_adapter", inner, std::move(mlp), false);
  for (const std::vector<std::string>* modules : {&names_.qkv, &names_.up})
    for (const std::string& module : *modules)
      whole.push_back(whole_tensor(module + kA, rank, spec_.hidden));
  for (const std::string& module : {names_.output, names_.down})
    whole.push_back(whole_tensor(module + kB, spec_.hidden, rank));
  add_adapted("whole_adapters", 1, std::move(whole), true);
  add_adapter_ends(rank, !spec_.tied_embeddings && is_adapted(kLmHeadModule, targets));
  return std::move(map_);
}

void MapBuilder::add_adapter_ends(int64_t rank, bool head) {
  if (spec_.scalar_head || spec_.value_head) add_scalar_head();
  if (spec_.scalar_head) return;
  if (!head) return;
  const std::string module = std::string(kAdapterPrefix) + kLmHeadModule;
  add_end("head_adapter", spec_.vocab, {cut_rows(module + kB, spec_.vocab, rank, spec_.vocab)},
          false, true);
  add_end("whole_head_adapter", 1, {whole_tensor(module + kA, rank, spec_.hidden)}, false, true,
          true);
}

// Joins a rectangle to the one before where they are neighbouring rows of one tensor.
void join_regions(std::vector<TensorRegion>* regions) {
  std::vector<TensorRegion> out;
  for (TensorRegion& region : *regions) {
    const bool joins =
        !out.empty() && out.back().tensor == region.tensor &&
        out.back().columns == region.columns && out.back().rows.end == region.rows.begin &&
        out.back().begin + out.back().rows.size() * region.columns.size() == region.begin;
    if (joins) {
      out.back().rows.end = region.rows.end;
    } else {
      out.push_back(std::move(region));
    }
  }
  *regions = std::move(out);
}

}  // namespace

void add_rectangles(const std::string& tensor, const Interval& rows, const Interval& columns,
                    Interval wanted, int64_t block_begin, std::vector<TensorRegion>* out) {
  const int64_t width = columns.size();
  while (wanted.size() > 0) {
    const int64_t row = wanted.begin / width, column = wanted.begin % width;
    const bool whole = column == 0 && wanted.size() >= width;
    const int64_t count = whole ? wanted.size() / width : 1;
    const int64_t length = whole ? width : std::min(width - column, wanted.size());
    out->push_back({tensor,
                    {rows.begin + row, rows.begin + row + count},
                    {columns.begin + column, columns.begin + column + length},
                    block_begin + wanted.begin});
    wanted.begin += count * length;
  }
}

TensorMap tensor_map(const ModelSpec& spec) { return MapBuilder(spec).weights(); }
TensorMap adapter_map(const ModelSpec& spec, int64_t rank,
                      const std::vector<std::string>& targets) {
  return MapBuilder(spec).adapters(rank, targets);
}

std::vector<TensorKind> kinds_of(const TensorMap& map) {
  std::vector<TensorKind> out;
  for (const MappedKind& mapped : map.kinds) out.push_back(mapped.kind);
  return out;
}

std::vector<TensorRegion> tensor_regions(const TensorMap& map, int32_t item, int64_t layer,
                                         const Interval& elements) {
  const TensorKind& kind = map.kinds[item].kind;
  const bool end = kind.layer_begin == kind.layer_end;
  const std::string prefix = end ? "" : cat(map.layer_prefix_begin, layer, map.layer_prefix_end);
  const int64_t per_unit = kind.elements / kind.units;
  std::vector<TensorRegion> out;
  for (int64_t unit = elements.begin / per_unit; unit * per_unit < elements.end; ++unit) {
    int64_t begin = unit * per_unit;
    for (const TensorPiece& piece : map.kinds[item].pieces) {
      const Interval cut{piece.first + unit * piece.per_unit,
                         piece.first + (unit + 1) * piece.per_unit};
      const Interval rows = piece.by_columns ? Interval{0, piece.rows} : cut;
      const Interval columns = piece.by_columns ? cut : Interval{0, piece.columns};
      const int64_t size = rows.size() * columns.size();
      const Interval wanted{std::max(elements.begin - begin, int64_t{0}),
                            std::min(elements.end - begin, size)};
      add_rectangles(prefix + piece.name, rows, columns, wanted, begin, &out);
      begin += size;
    }
  }
  join_regions(&out);
  return out;
}

}  // namespace braid::inline program

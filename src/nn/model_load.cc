// Loading of Hugging Face folders: names and shapes are checked against the spec before anything is
// allocated, then tensors are copied one by one from the map.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/all.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/ceil_div.h"
#include "base/text.h"
#include "comm/communicator.h"
#include "device/device_copy.h"
#include "nn/decoder.h"
#include "nn/model_export.h"
#include "nn/safetensors.h"
#include "nn/unit_writer.h"

namespace braid::inline nn {

namespace {

// The checkpoint of one folder seen through the names that its family uses.
struct Source {
  ModelSpec spec;  // as stored
  WeightFolder weights;
  std::string prefix;  // of the family; some checkpoints of the bare decoder leave it out
  bool bare = false;

  std::string stored_name(const std::string& name) const {
    return bare && name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
  }
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return cat("[", join(sizes, ", "), "]");
}

Status check_tensor(const Source& source, const TensorSpec& tensor, const std::string& folder) {
  const std::string name = source.stored_name(tensor.name);
  if (!source.weights.has(name))
    return invalid_input(cat(folder, ": tensor ", name, " is missing; config.json says ",
                             source.spec.architecture, " with ", source.spec.layers, " layers"));
  std::vector<int64_t> wanted = tensor.shape;
  if (tensor.transposed) std::reverse(wanted.begin(), wanted.end());
  const std::vector<int64_t>& found = source.weights.entry(name).shape;
  if (found == wanted) return ok_status();
  return invalid_input(cat(source.weights.file(name).path(), ": tensor ", name, " has shape ",
                           shape_text(found), ", config.json asks for ", shape_text(wanted)));
}

// Of a policy that shared its trunk with a critic; a language model does without it.
bool has_value_head(const Source& source) {
  return !source.spec.scalar_head && source.weights.has(kScoreName);
}

Status check_names(const Source& source, const std::string& folder) {
  std::set<std::string> expected;
  for (const TensorSpec& tensor : model_tensors(source.spec, 0, source.spec.layers)) {
    BRAID_TRY(check_tensor(source, tensor, folder));
    expected.insert(source.stored_name(tensor.name));
  }
  if (source.spec.tied_embeddings) expected.insert(kLmHeadName);  // an equal copy in some files
  if (has_value_head(source)) {
    BRAID_TRY(check_tensor(source, {kScoreName, {1, source.spec.hidden}}, folder));
    expected.insert(kScoreName);
  }
  const std::vector<std::string>& ignored = family_of(source.spec).names.ignored;
  for (const std::string& name : source.weights.names()) {
    const bool known = expected.count(name) > 0 ||
                       std::any_of(ignored.begin(), ignored.end(),
                                   [&](const std::string& end) { return ends_with(name, end); });
    if (!known)
      return invalid_input(cat(source.weights.file(name).path(), ": tensor ", name,
                               " does not belong to ", source.spec.architecture));
  }
  return ok_status();
}

// A part of a tensor in the orientation [out, in]; a vector has one column.
struct Block {
  IndexRange rows, columns;
};

// What of a whole tensor some rows of this rank's part of it are.
std::vector<Block> blocks_of(const TensorShard& shard, const IndexRange& rows) {
  const IndexRange columns{0, shard.whole.size() > 1 ? shard.whole[1] : 1};
  if (shard.pieces.empty()) return {{rows, columns}};
  std::vector<Block> out;
  int64_t before = 0;
  for (const IndexRange& piece : shard.pieces) {
    if (shard.dim == 1) {
      out.push_back({rows, piece});
      continue;
    }
    const IndexRange part{std::max(rows.begin - before, int64_t{0}),
                          std::min(rows.end - before, piece.size())};
    if (part.size() > 0)
      out.push_back({{piece.begin + part.begin, piece.begin + part.end}, columns});
    before += piece.size();
  }
  return out;
}

// Some rows of this rank's part of a stored tensor, in the orientation [out, in].
Result<at::Tensor> read_rows(const Source& source, const TensorSpec& tensor,
                             const TensorShard& shard, const IndexRange& rows, ReadBlocks* read) {
  const std::string name = source.stored_name(tensor.name);
  const SafetensorsFile& file = source.weights.file(name);
  std::vector<at::Tensor> parts;
  for (const Block& block : blocks_of(shard, rows)) {
    StoredSlice stored{file.path(), name,       source.weights.entry(name).shape,
                       shard.dim,   block.rows, block.columns};
    if (tensor.transposed) {
      stored.dim = 1 - shard.dim;
      std::swap(stored.rows, stored.columns);
    }
    BRAID_ASSIGN(const at::Tensor part, file.read_block(name, stored.rows, stored.columns));
    if (read != nullptr) note_read(stored, part, read);
    parts.push_back(tensor.transposed ? part.t() : part);
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, shard.dim);
}

// The rows of this rank's part of a tensor in which there is something that it keeps.
IndexRange wanted_rows(const Decoder& decoder, const std::string& name, const at::Tensor& part) {
  const WeightKeeper* const keeper = decoder.keeper();
  const auto kept = keeper == nullptr ? std::nullopt : keeper->kept(name);
  if (!kept) return {0, part.size(0)};
  if (kept->size() == 0) return {};
  const int64_t width = part.numel() / part.size(0);
  return {kept->begin / width, ceil_div(kept->end, width)};
}

Result<at::Tensor> read_finite(const Source& source, const TensorSpec& tensor,
                               const TensorShard& shard, const IndexRange& rows, ReadBlocks* read) {
  BRAID_ASSIGN(const at::Tensor value, read_rows(source, tensor, shard, rows, read));
  const std::string name = source.stored_name(tensor.name);
  if (!at::isfinite(value).all().item<bool>())
    return invalid_input(
        cat(source.weights.file(name).path(), ": tensor ", name, " holds NaN or infinite values"));
  return value;
}

// From the first of the ranks, of which `own` says whether reading failed, to the others: its
// numbers, or that it failed.
Status send_read(Communicator& readers, const std::string& tensor, const Status& own,
                 const at::Tensor& values) {
  const int64_t reader = readers.members().front();
  const at::Tensor failed = at::full({1}, own.ok() ? 0 : 1, at::kInt);
  BRAID_TRY(readers.broadcast(failed, reader, cat(tensor, ", whether it was read")).wait());
  if (!own.ok()) return own;
  if (failed.item<int32_t>() != 0)
    return invalid_input(cat("rank ", reader,
                             ", which reads the files of weights for this one, "
                             "has failed at tensor ",
                             tensor, "; it says why"));
  // As bytes: the backend does not know all types.
  return readers.broadcast(values.view({-1}).view(at::kByte), reader, tensor).wait();
}

Status copy_tensor(const Source& source, const TensorSpec& tensor, const Decoder& decoder,
                   at::Tensor& target, const LoadOptions& options) {
  const IndexRange rows = wanted_rows(decoder, tensor.name, target);
  if (rows.size() == 0) return ok_status();
  const at::Tensor part = target.narrow(0, rows.begin, rows.size());
  Communicator* const readers = options.readers;
  Result<at::Tensor> value = at::Tensor();
  if (readers == nullptr || readers->index() == 0)
    value = read_finite(source, tensor, decoder.shards().at(tensor.name), rows, options.read);
  if (readers != nullptr) {
    // In the type of the part, which all of the ranks know.
    const at::Tensor shared = at::empty(part.sizes(), part.options().device(at::kCPU));
    if (value.ok() && value->defined()) shared.copy_(*value);
    BRAID_TRY(send_read(*readers, tensor.name, value.status(), shared));
    value = shared;
  }
  BRAID_TRY(value.status());
  part.copy_(to_device(*value, target.device()));
  return ok_status();
}

Status copy_weights(const Source& source, Decoder& decoder, const LoadOptions& options) {
  const at::NoGradGuard no_grad;
  const bool wanted = decoder.spec().scalar_head || decoder.spec().value_head;
  const bool new_head = wanted && !source.spec.scalar_head && !has_value_head(source);
  const auto specs = decoder.tensors();
  Status status;
  size_t next = 0;
  UnitWriter writer(decoder, true);
  decoder.visit_base([&](const std::string& name, at::Tensor& target) {
    const TensorSpec& tensor = specs[next++];
    BRAID_CHECK(tensor.name == name, "tensors come in the order of model_tensors()");
    writer.enter(name);
    if (new_head && name == kScoreName) {
      target.zero_();
    } else if (status.ok()) {
      status = copy_tensor(source, tensor, decoder, target, options);
    }
  });
  return status;
}

Result<Source> open_source(const std::string& folder) {
  const std::string config_path = join_path(folder, "config.json");
  BRAID_ASSIGN(const std::string config, read_file(config_path));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(config, config_path));
  BRAID_ASSIGN(WeightFolder weights, WeightFolder::open(folder));
  const TensorNames& names = family_of(spec).names;
  const bool bare = !weights.has(names.prefix + names.embedding) && weights.has(names.embedding);
  Source source{std::move(spec), std::move(weights), names.prefix, bare};
  BRAID_TRY(check_names(source, folder));
  return source;
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::string& folder, const LoadOptions& options) {
  if (is_adapter_folder(folder)) return load_adapted_model(folder, options);
  BRAID_ASSIGN(const Source source, open_source(folder));
  ModelSpec spec = source.spec;
  if (options.scalar_head && !spec.scalar_head) {
    spec.scalar_head = true;
    spec.architecture = family_of(spec).score_architecture;
  }
  spec.value_head = options.value_head && !spec.scalar_head;
  BRAID_TRY(Decoder::validate_options(spec, options.model).at(folder));
  auto decoder = std::make_unique<Decoder>(spec, options.model);
  if (options.placed) options.placed(*decoder, false);
  BRAID_TRY(copy_weights(source, *decoder, options));
  init_adapters(*decoder);
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace braid::inline nn

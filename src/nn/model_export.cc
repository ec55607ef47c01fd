#include "nn/model_export.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "host/staged_folder.h"
#include "nn/dtype_text.h"
#include "nn/safetensors.h"

namespace braid::inline nn {

namespace {

// Everything of a folder that is neither weights nor config.json.
const char* const kCopiedFiles[] = {"generation_config.json"};
const char* const kTokenizerFiles[] = {"tokenizer.json",    "tokenizer_config.json",
                                       "tokenizer.model",   "special_tokens_map.json",
                                       "added_tokens.json", "vocab.json",
                                       "merges.txt",        "chat_template.jinja",
                                       "chat_template.json"};

at::ScalarType stated_dtype(const ModelSpec& spec, at::ScalarType otherwise) {
  if (spec.dtype == "bfloat16") return at::kBFloat16;
  if (spec.dtype == "float16") return at::kHalf;
  return spec.dtype == "float32" ? at::kFloat : otherwise;
}

// config.json of the source; changed only where the model has another head or dtype than it states.
Result<std::string> config_text(const ModelSpec& spec, const ExportOptions& options,
                                at::ScalarType dtype) {
  const std::string path =
      options.config.empty() ? join_path(options.source_folder, "config.json") : options.config;
  BRAID_ASSIGN(std::string text, read_file(path));
  BRAID_ASSIGN(const ModelSpec source, parse_model_spec(text, path));
  const bool other_head = source.scalar_head != spec.scalar_head;
  const bool other_dtype = !source.dtype.empty() && source.dtype != dtype_text(dtype);
  if (!other_head && !other_dtype) return text;
  OrderedJson config = OrderedJson::parse(text);
  if (other_dtype) config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_text(dtype);
  if (other_head) {
    config["architectures"] = {spec.architecture};
    config["id2label"] = {{"0", "LABEL_0"}};
    config["label2id"] = {{"LABEL_0", 0}};
    config.erase("num_labels");
  }
  return config.dump(2) + "\n";
}

// float16 ends at 65504.
Result<at::Tensor> in_dtype(const Decoder::Named& item, at::ScalarType dtype) {
  const at::Tensor value = item.second.detach(), out = value.to(dtype);
  const bool narrows = dtype == at::kHalf && value.scalar_type() != dtype;
  if (narrows && !at::isfinite(out).all().item<bool>() && at::isfinite(value).all().item<bool>())
    return invalid_input(cat(item.first,
                             " has a weight beyond the range of float16; write "
                             "export.dtype=bf16 or f32"));
  return out;
}

Status copy_file(const std::string& from, const std::string& to) {
  if (!path_exists(from)) return ok_status();
  BRAID_ASSIGN(const std::string bytes, read_file(from));
  return write_file_atomic(to, bytes);
}

Status copy_files(const ExportOptions& options, const std::string& to) {
  for (const char* name : kCopiedFiles)
    BRAID_TRY(copy_file(join_path(options.source_folder, name), join_path(to, name)));
  const std::string& given = options.tokenizer;
  const bool is_file = !given.empty() && !is_folder(given);
  const std::string own = is_file ? parent_folder(given) : given;
  const std::string folder = own.empty() ? options.source_folder : own;
  for (const char* name : kTokenizerFiles)
    BRAID_TRY(copy_file(join_path(folder, name), join_path(to, name)));
  return is_file ? copy_file(given, join_path(to, kTokenizerFiles[0])) : ok_status();
}

const Decoder& decoder_to_save(const Model& model) {
  const auto* decoder = dynamic_cast<const Decoder*>(&model);
  BRAID_CHECK(decoder != nullptr, "a view or an offloaded copy is not exported");
  return *decoder;
}

// model.safetensors, of parts that come one after another.
class MergedFile {
 public:
  MergedFile(std::string folder, const ExportOptions& options)
      : folder_(std::move(folder)), options_(options) {}

  Status add(const Decoder& part) {
    if (!writer_) BRAID_TRY(begin(part));
    for (const Decoder::Named& item : part.merged_parameters()) {
      const bool again = next_ == specs_.size() || specs_[next_].name != item.first;
      if (again && item.first == specs_[0].name) continue;  // a tied head, which is the embedding
      BRAID_CHECK(!again, "tensors come in the order of model_tensors()");
      BRAID_ASSIGN(const at::Tensor value, in_dtype(item, dtype_));
      BRAID_TRY(writer_->write(specs_[next_++].transposed ? value.t() : value));
    }
    return ok_status();
  }

  Status finish() {
    if (next_ < specs_.size() || !writer_)
      return invalid_input("only a model with all its layers can be exported");
    return writer_->finish();
  }

 private:
  Status begin(const Decoder& part) {
    const ModelSpec& spec = part.spec();
    dtype_ = options_.dtype.value_or(stated_dtype(spec, part.options().dtype));
    specs_ = model_tensors(spec, 0, spec.layers);
    if (part.ranges().front().begin != 0)
      return invalid_input("only a model with all its layers can be exported");
    BRAID_ASSIGN(const std::string config, config_text(spec, options_, dtype_));
    BRAID_TRY(copy_files(options_, folder_));
    BRAID_TRY(write_file_atomic(join_path(folder_, "config.json"), config));
    std::vector<NewTensor> entries;
    for (const TensorSpec& tensor : specs_) {
      entries.push_back({tensor.name, dtype_, tensor.shape});
      if (tensor.transposed) std::reverse(entries.back().shape.begin(), entries.back().shape.end());
    }
    const std::string path = join_path(folder_, "model.safetensors");
    BRAID_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, std::move(entries)));
    writer_.emplace(std::move(writer));
    return ok_status();
  }

  const std::string folder_;
  const ExportOptions& options_;
  at::ScalarType dtype_ = at::kFloat;
  std::vector<TensorSpec> specs_;
  size_t next_ = 0;
  std::optional<SafetensorsWriter> writer_;  // once there is a part
};

Status write_merged(const ModelParts& parts, const std::string& folder,
                    const ExportOptions& options) {
  MergedFile file(folder, options);
  BRAID_TRY(parts([&](const Model& part) { return file.add(decoder_to_save(part)); }));
  return file.finish();
}

// The score head comes first, as in a model that is whole.
Status write_adapters(const ModelParts& parts, const std::string& folder,
                      const ExportOptions& options) {
  std::vector<Decoder::Named> tensors;
  std::string config;
  BRAID_TRY(parts([&](const Model& model) {
    const Decoder& part = decoder_to_save(model);
    if (part.options().lora.rank == 0) return invalid_input("the model has no adapters to export");
    config = adapter_config(part, options.source_folder).dump(2) + "\n";
    for (const Decoder::Named& item : part.trainable_parameters()) {
      const bool score = item.first == kScoreName;
      BRAID_ASSIGN(const at::Tensor value,
                   in_dtype(item, options.dtype.value_or(item.second.scalar_type())));
      tensors.emplace(score ? tensors.begin() : tensors.end(),
                      score ? adapter_score_name() : item.first, value.detach().clone());
    }
    return ok_status();
  }));
  BRAID_TRY(copy_files(options, folder));
  BRAID_TRY(write_file_atomic(join_path(folder, "adapter_config.json"), config));
  return write_safetensors(join_path(folder, "adapter_model.safetensors"), tensors);
}

// An existing folder is replaced only when it is empty or an earlier export.
Status check_target(const std::string& folder) {
  if (!path_exists(folder)) return ok_status();
  if (!is_folder(folder)) return invalid_input(cat(folder, ": exists and is not a folder"));
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  const bool exported = path_exists(join_path(folder, "model.safetensors")) ||
                        path_exists(join_path(folder, "adapter_model.safetensors"));
  if (names.empty() || exported) return ok_status();
  return invalid_input(cat(folder, ": exists and holds no model; give a new folder"));
}

}  // namespace

Status save_model(const ModelParts& parts, const std::string& folder_in,
                  const ExportOptions& options) {
  std::string folder = folder_in;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  BRAID_TRY(check_target(folder));
  BRAID_ASSIGN(StagedFolder staged, StagedFolder::create(folder));
  BRAID_TRY(options.merge_adapters ? write_merged(parts, staged.staging(), options)
                                   : write_adapters(parts, staged.staging(), options));
  return staged.publish();
}

Status save_model(const Model& model, const std::string& folder, const ExportOptions& options) {
  return save_model([&](const auto& use) { return use(model); }, folder, options);
}

}  // namespace braid::inline nn

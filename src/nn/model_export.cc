#include "nn/model_export.h"

#include <ATen/ops/isfinite.h>

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
Result<std::string> config_text(const Model& model, const ExportOptions& options,
                                at::ScalarType dtype) {
  const std::string path =
      options.config.empty() ? join_path(options.source_folder, "config.json") : options.config;
  BRAID_ASSIGN(std::string text, read_file(path));
  BRAID_ASSIGN(const ModelSpec source, parse_model_spec(text, path));
  const bool other_head = source.scalar_head != model.spec().scalar_head;
  const bool other_dtype = !source.dtype.empty() && source.dtype != dtype_text(dtype);
  if (!other_head && !other_dtype) return text;
  OrderedJson config = OrderedJson::parse(text);
  if (other_dtype) config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_text(dtype);
  if (other_head) {
    config["architectures"] = {model.spec().architecture};
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

Result<std::vector<Decoder::Named>> file_tensors(const Decoder& decoder, at::ScalarType dtype) {
  const auto specs = model_tensors(decoder.spec(), 0, decoder.spec().layers);
  std::vector<Decoder::Named> tensors = decoder.merged_parameters();
  for (size_t i = 0; i < tensors.size(); ++i) {
    BRAID_ASSIGN(const at::Tensor value, in_dtype(tensors[i], dtype));
    tensors[i].second = specs[i].transposed ? value.t() : value;
  }
  return tensors;
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

Status write_merged(const Decoder& decoder, const std::string& folder,
                    const ExportOptions& options) {
  const at::ScalarType dtype =
      options.dtype.value_or(stated_dtype(decoder.spec(), decoder.options().dtype));
  BRAID_ASSIGN(const std::string config, config_text(decoder, options, dtype));
  BRAID_TRY(copy_files(options, folder));
  BRAID_TRY(write_file_atomic(join_path(folder, "config.json"), config));
  BRAID_ASSIGN(const std::vector<Decoder::Named> tensors, file_tensors(decoder, dtype));
  return write_safetensors(join_path(folder, "model.safetensors"), tensors);
}

Status write_adapters(const Decoder& decoder, const std::string& folder,
                      const ExportOptions& options) {
  std::vector<Decoder::Named> tensors;
  for (const Decoder::Named& item : decoder.trainable_parameters()) {
    const bool score = item.first == kScoreName;
    BRAID_ASSIGN(at::Tensor value,
                 in_dtype(item, options.dtype.value_or(item.second.scalar_type())));
    tensors.emplace_back(score ? adapter_score_name() : item.first, std::move(value));
  }
  const std::string config = adapter_config(decoder, options.source_folder).dump(2) + "\n";
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

Status write_all(const Decoder& decoder, const std::string& folder, const ExportOptions& options) {
  return options.merge_adapters ? write_merged(decoder, folder, options)
                                : write_adapters(decoder, folder, options);
}

}  // namespace

Status save_model(const Model& model, const std::string& folder_in, const ExportOptions& options) {
  const auto* whole = dynamic_cast<const Decoder*>(&model);
  BRAID_CHECK(whole != nullptr, "a view or an offloaded copy is not exported");
  const Decoder& decoder = *whole;
  if (decoder.ranges() != std::vector<LayerRange>{{0, decoder.spec().layers}})
    return invalid_input("only a model with all its layers can be exported");
  if (!options.merge_adapters && decoder.options().lora.rank == 0)
    return invalid_input("the model has no adapters to export");
  std::string folder = folder_in;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  BRAID_TRY(check_target(folder));
  BRAID_ASSIGN(StagedFolder staged, StagedFolder::create(folder));
  BRAID_TRY(write_all(decoder, staged.staging(), options));
  return staged.publish();
}

}  // namespace braid::inline nn

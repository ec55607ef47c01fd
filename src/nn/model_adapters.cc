// LoRA adapters in PEFT's folder layout: adapter_config.json and adapter_model.safetensors.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/json.h"
#include "nn/decoder.h"
#include "nn/model_export.h"
#include "nn/safetensors.h"

namespace braid::inline nn {

namespace {

// Fields of PEFT's LoraConfig that change what an adapter computes, with their neutral values.
Status refuse_variants(const Json& config) {
  for (const char* key : {"use_dora", "use_rslora", "lora_bias"}) {
    BRAID_ASSIGN(const bool on, json_field_or<bool>(config, key, false));
    if (on) return invalid_input(cat("key '", key, "' is true, which is not supported"));
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "layers_to_transform"})
    if (const auto found = config.find(key); found != config.end() && !found->empty())
      return invalid_input(cat("key '", key, "' is not supported"));
  return ok_status();
}

Result<LoraOptions> parse_lora_options(const Json& config) {
  BRAID_ASSIGN(const std::string type, json_field<std::string>(config, "peft_type"));
  if (type != "LORA") return invalid_input(cat("peft_type is '", type, "'; only LORA is read"));
  BRAID_TRY(refuse_variants(config));
  LoraOptions lora;
  BRAID_ASSIGN(lora.rank, json_field<int64_t>(config, "r"));
  BRAID_ASSIGN(lora.alpha, json_field<double>(config, "lora_alpha"));
  const auto targets = config.find("target_modules");
  if (targets != config.end() && *targets == "all-linear") {
    lora.targets = {"all-linear"};
  } else {
    BRAID_ASSIGN(lora.targets, json_field<std::vector<std::string>>(config, "target_modules"));
  }
  if (lora.rank <= 0) return invalid_input(cat("'r' is ", lora.rank, "; it must be positive"));
  return lora;
}

Status copy_adapter(const SafetensorsFile& file, const std::string& name, const TensorShard& shard,
                    at::Tensor& target) {
  const auto entry = file.entries().find(name);
  if (entry == file.entries().end())
    return invalid_input(cat(file.path(), ": tensor ", name, " is missing"));
  if (entry->second.shape != shard.whole)
    return invalid_input(
        cat(file.path(), ": tensor ", name, " does not have the shape that the model asks for"));
  BRAID_ASSIGN(const at::Tensor value, file.read(name));
  if (!at::isfinite(value).all().item<bool>())
    return invalid_input(cat(file.path(), ": tensor ", name, " holds NaN or infinite values"));
  target.copy_(take_shard(value, shard));
  return ok_status();
}

}  // namespace

Result<LoraOptions> read_lora_options(const std::string& folder) {
  const std::string path = join_path(folder, "adapter_config.json");
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Json config, parse_json(text, path));
  if (!config.is_object()) return invalid_input(cat(path, ": must be a JSON object"));
  return parse_lora_options(config).at(path);
}

Status load_adapters(Model& model, const std::string& folder) {
  auto& decoder = dynamic_cast<Decoder&>(model);
  BRAID_ASSIGN(const SafetensorsFile file,
               SafetensorsFile::open(join_path(folder, "adapter_model.safetensors")));
  const at::NoGradGuard no_grad;
  size_t used = 0;
  Status status;
  const auto copy = [&](const std::string& name, const std::string& stored, at::Tensor& target) {
    ++used;
    if (status.ok()) status = copy_adapter(file, stored, decoder.shards().at(name), target);
  };
  decoder.visit_adapters(
      [&](const std::string& name, at::Tensor& target) { copy(name, name, target); });
  decoder.visit_base([&](const std::string& name, at::Tensor& target) {
    if (name == kScoreName) copy(name, adapter_score_name(), target);
  });
  BRAID_TRY(status);
  // A range of layers needs only its own.
  const bool whole = decoder.ranges() == std::vector<LayerRange>{{0, decoder.spec().layers}};
  // A language model does without the head of a critic that shared its trunk.
  const bool has_head = decoder.spec().scalar_head || decoder.spec().value_head;
  if (!has_head && file.entries().count(adapter_score_name()) > 0) ++used;
  if (whole && used != file.entries().size())
    return invalid_input(cat(file.path(), ": holds ", file.entries().size(),
                             " tensors, the model has ", used, " of them"));
  return ok_status();
}

namespace {

// The base of an adapter folder: a path of its own, or relative to the working folder or to the
// adapter folder.
Result<std::string> base_folder(const std::string& folder, const std::string& named) {
  for (const std::string& path : {named, join_path(folder, named)})
    if (is_folder(path) && !is_adapter_folder(path)) return path;
  return not_found(cat("base_model_name_or_path '", named,
                       "' is no local folder; name the folder of the base model there"));
}

// What an adapter folder says of the base.
Result<std::string> named_base(const Json& config, const std::string& folder) {
  const std::string path = join_path(folder, "adapter_config.json");
  BRAID_ASSIGN(const std::string named,
               json_field<std::string>(config, "base_model_name_or_path").at(path));
  BRAID_ASSIGN(std::string base, base_folder(folder, named).at(path));
  return base;
}

}  // namespace

Result<std::vector<std::string>> model_files(const std::string& folder) {
  if (is_adapter_folder(folder)) {
    const std::string path = join_path(folder, "adapter_config.json");
    BRAID_ASSIGN(const std::string text, read_file(path));
    BRAID_ASSIGN(const Json config, parse_json(text, path));
    BRAID_ASSIGN(const std::string base, named_base(config, folder));
    BRAID_ASSIGN(std::vector<std::string> out, model_files(base));
    out.insert(out.end(), {path, join_path(folder, "adapter_model.safetensors")});
    return out;
  }
  BRAID_ASSIGN(const WeightFolder weights, WeightFolder::open(folder));
  std::vector<std::string> out = weights.paths();
  out.push_back(join_path(folder, "config.json"));
  return out;
}

Result<std::unique_ptr<Model>> load_adapted_model(const std::string& folder,
                                                  const LoadOptions& options) {
  const std::string path = join_path(folder, "adapter_config.json");
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Json config, parse_json(text, path));
  LoadOptions adapted = options;
  adapted.placed = {};
  BRAID_ASSIGN(adapted.model.lora, read_lora_options(folder));
  BRAID_ASSIGN(const std::string task,
               json_field_or<std::string>(config, "task_type", "CAUSAL_LM").at(path));
  if (task == "SEQ_CLS") adapted.scalar_head = true;
  BRAID_ASSIGN(const std::string base, named_base(config, folder));
  BRAID_ASSIGN(std::unique_ptr<Model> model, load_model(base, adapted));
  BRAID_TRY(load_adapters(*model, folder));
  if (options.placed) options.placed(*model, true);
  return model;
}

namespace {

// The last parts of the adapted modules' names, as PEFT saves them for all-linear; other targets
// stay as they were given.
std::vector<std::string> target_modules(const Decoder& decoder) {
  const std::vector<std::string>& targets = decoder.options().lora.targets;
  if (std::find(targets.begin(), targets.end(), "all-linear") == targets.end()) return targets;
  std::set<std::string> names;
  constexpr std::string_view kEnd = ".lora_A.weight";
  for (const auto& [name, tensor] : decoder.parameters()) {
    if (name.size() < kEnd.size() || name.substr(name.size() - kEnd.size()) != kEnd) continue;
    const std::string module = name.substr(0, name.size() - kEnd.size());
    names.insert(module.substr(module.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

}  // namespace

Json adapter_config(const Decoder& decoder, const std::string& base_folder) {
  const LoraOptions& lora = decoder.options().lora;
  const bool scalar = decoder.spec().scalar_head;
  Json config = {{"peft_type", "LORA"},
                 {"task_type", scalar ? "SEQ_CLS" : "CAUSAL_LM"},
                 {"base_model_name_or_path", base_folder},
                 {"r", lora.rank},
                 {"lora_alpha", lora.alpha},
                 {"lora_dropout", lora.dropout},
                 {"target_modules", target_modules(decoder)},
                 {"bias", "none"},
                 {"fan_in_fan_out", family_of(decoder.spec()).names.transposed},
                 {"inference_mode", true}};
  if (scalar) config["modules_to_save"] = {"score"};
  return config;
}

}  // namespace braid::inline nn

#include "weights/export_role.h"

#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "host/machine.h"
#include "inputs/run_data.h"
#include "nn/decoder.h"
#include "nn/dtype_text.h"
#include "weights/run_state.h"

namespace braid::inline weights {
namespace {

// The type that an export is written in, by export.dtype; none: that of the source.
std::optional<at::ScalarType> export_dtype(const Config& config) {
  const std::string& stated = config.exports.dtype;
  if (stated == "bf16") return at::kBFloat16;
  if (stated == "f16") return at::kHalf;
  const bool full = stated == "f32" || config.model.dtype != "bf16";
  return full ? std::optional(at::kFloat) : std::nullopt;
}

// Whoever reads the export beside its source meets another type there.
void note_dtype(const std::string& role, const ModelSpec& spec, const ExportOptions& options) {
  const std::string& source = spec.dtype;  // as config.json says it
  if (!options.dtype || source.empty() || source == dtype_text(*options.dtype)) return;
  log_info(cat("export of ", role, ": weights in ", dtype_text(*options.dtype), ", those of ",
               options.source_folder, " are in ", source,
               "; export.dtype (auto | f32 | bf16 | f16) says which"));
}

// A role in parts, whose spec and source are these.
struct ExportedRole {
  const std::string& name;
  const ModelSpec& spec;
  ExportOptions options;
};

Status export_parts(ExportedRole role, const Config& config, const std::string& folder,
                    const ModelParts& parts) {
  if (config.train.offload != "off") release_free_heap();  // files come into memory beside it
  const std::string as = config.lora.rank > 0 ? config.lora.export_as : std::string("merged");
  role.options.tokenizer = tokenizer_path(config);
  role.options.dtype = export_dtype(config);
  note_dtype(role.name, role.spec, role.options);
  const std::string path = join_path(folder, role.name), what = cat("export of ", role.name);
  if (as != "adapters") BRAID_TRY(save_model(parts, path, role.options).at(what));
  if (as == "merged") return ok_status();
  role.options.merge_adapters = false;
  return save_model(parts, as == "both" ? path + "-adapter" : path, role.options).at(what);
}

// A part of a role that has no values of what the run changes.
Result<ModelInstance> empty_part(const RoleSpec& spec, const Origin& origin,
                                 const ModelSpec& architecture, const ModelOptions& options) {
  ModelInstance out;
  if (options.lora.rank > 0) {
    BRAID_ASSIGN(out.model, load_weights(origin, {options, spec.scalar_head, spec.value_head}));
    return out;
  }
  BRAID_TRY(Decoder::validate_options(architecture, options));
  out.model = std::make_unique<Decoder>(architecture, options);
  return out;
}

}  // namespace

Status export_role(const std::string& role, const ModelInstance& state, const Config& config,
                   const std::string& folder) {
  ExportOptions options;
  options.source_folder = state.source_folder;
  options.config = state.config_path;
  return export_parts({role, state.model->spec(), options}, config, folder,
                      [&](const auto& use) { return use(*state.model); });
}

Status export_saved_role(const RoleSpec& spec, CheckpointReader& saved, const Config& config,
                         const std::string& folder) {
  const std::string& name = spec.role.value;
  BRAID_ASSIGN(const Origin origin, role_origin(config, name));
  BRAID_ASSIGN(const ModelSpec architecture,
               origin_spec(origin, spec.scalar_head, spec.value_head));
  BRAID_ASSIGN(ModelOptions options, model_options(config));
  ExportOptions out;
  out.source_folder = origin.source_folder();
  out.config = origin.config_path;
  const ModelParts layers = [&](const auto& use) {
    for (int64_t layer = 0; layer < architecture.layers; ++layer) {
      options.ranges = {{layer, layer + 1}};
      BRAID_ASSIGN(const ModelInstance part, empty_part(spec, origin, architecture, options));
      BRAID_TRY(load_role_weights(name, saved, part));
      BRAID_TRY(use(*part.model));
    }
    return ok_status();
  };
  return export_parts({name, architecture, out}, config, folder, layers);
}

}  // namespace braid::inline weights

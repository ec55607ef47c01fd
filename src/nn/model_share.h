// Models over weights that exist already: the reference of a LoRA actor, several LoRA roles of one
// checkpoint, and frozen models whose weights leave memory between uses. Not thread-safe; instances
// that share must be used from one thread.
#pragma once

#include <memory>
#include <string>

#include "nn/model.h"

namespace braid::inline nn {

// The base of a model with adapters, as a model of its own: each forward runs with the adapters
// off. Nothing is copied. REQUIRES: `model` outlives the view.
std::unique_ptr<Model> base_view(Model& model);

// Another role over the base weights of `base`: adapters of its own (options.model.lora), and with
// options.scalar_head a score head of its own, which is a copy of the base's or zero. Equal to
// load_model() of the same folder with the same options. The base must never be trained. Errors:
// a language model wanted of a base with a scalar head, unknown LoRA targets.
Result<std::unique_ptr<Model>> make_role(const Model& base, const LoadOptions& options);

// A frozen model with the present weights of `model` that leave memory in Model::rest(). On the CPU
// they are held in a nameless file in `folder` ("" = the system's folder for temporary files), else
// in pinned host memory, from where the first forward after a rest brings them back to the device.
// Errors: a file that cannot be written.
Result<std::unique_ptr<Model>> offload_model(const Model& model, const std::string& folder);

}  // namespace braid::inline nn

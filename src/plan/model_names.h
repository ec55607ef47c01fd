// Model sizes from the names that people write: catalogue names, paths of config.json, and names
// of Hugging Face repositories. Pure; thread-safe.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "dataflow/model_size.h"

namespace braid::inline plan {

// Gives the text of a file; plan-side code opens none itself.
using ReadText = std::function<Result<std::string>(const std::string& path)>;

// The catalogue entry that a name means: "llama2-7b", "meta-llama/Llama-2-7b-chat-hf",
// "Qwen2.5-7B-Instruct". Unknown names are kNotFound with the nearest catalogue name.
// Words in front of a known name and behind its size do not matter: "my-sft-qwen3-8b-v2" is
// qwen3-8b.
Result<ModelSize> find_model_by_any_name(const std::string& name);
// What of the named model is not priced, "the vision tower of ..."; "" = nothing.
std::string unpriced_parts(const std::string& name);

// The size that a text states: a path that ends in ".json" is read as a Hugging Face config.json,
// anything else is a name.
Result<ModelSize> resolve_model_size(const std::string& text, const ReadText& read);

}  // namespace braid::inline plan

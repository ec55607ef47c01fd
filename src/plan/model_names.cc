#include "plan/model_names.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace braid {
namespace {

// Words that say how weights were trained or stored, not their size.
constexpr const char* kWordsWithoutSize[] = {"hf",   "instruct", "chat", "base", "meta", "it",
                                             "v0.1", "v0.2",     "v0.3", "2407", "bf16"};

std::string lower_basename(const std::string& name) {
  std::string out =
      name.substr(name.find_last_of('/') == std::string::npos ? 0 : name.find_last_of('/') + 1);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "Llama-2-7b-chat-hf" and "llama2-7b" become "llama27b": letters, digits and dots of the words
// that say the size.
std::string essence(const std::string& name) {
  std::string out;
  for (const std::string& word : split(lower_basename(name), '-')) {
    const bool skip = std::any_of(std::begin(kWordsWithoutSize), std::end(kWordsWithoutSize),
                                  [&](const char* other) { return word == other; });
    if (skip) continue;
    for (const char c : word)
      if (c != '_') out += c;
  }
  return out;
}

// Names in use whose essence is another model's or no catalogue name's.
struct Alias {
  const char* essence;
  const char* model;
};
constexpr Alias kAliases[] = {{"llama34b", "codellama-34b"},   {"llama70b", "llama2-70b"},
                              {"llama33b", "llama-30b"},       {"llama3.18b", "llama3-8b"},
                              {"llama3.170b", "llama3-70b"},   {"llama3.370b", "llama3-70b"},
                              {"qwen7b", "qwen1-7b"},          {"qwen14b", "qwen1-14b"},
                              {"qwen2.5math7b", "qwen2.5-7b"}, {"qwen2.5math1.5b", "qwen2.5-1.5b"}};

}  // namespace

Result<ModelSize> find_model_by_any_name(const std::string& name) {
  auto exact = find_model(name);
  if (exact.ok()) return exact;
  const std::string wanted = essence(name);
  for (const Alias& alias : kAliases)
    if (wanted == alias.essence) return find_model(alias.model);
  for (const ModelSize& model : model_catalogue())
    if (wanted == essence(model.name)) return model;
  return exact.status();
}

Result<ModelSize> resolve_model_size(const std::string& text, const ReadText& read) {
  const std::string suffix = ".json";
  const bool file = text.size() > suffix.size() &&
                    text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
  if (!file) return find_model_by_any_name(text);
  BRAID_ASSIGN(const std::string config, read(text));
  return parse_hf_config(config, text);
}

}  // namespace braid

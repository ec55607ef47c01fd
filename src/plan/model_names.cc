#include "plan/model_names.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace braid {
namespace {

// Words that say how weights were trained or stored, not their size.
constexpr const char* kWordsWithoutSize[] = {"hf",   "instruct", "chat",  "base", "meta",
                                             "it",   "v0.1",     "v0.2",  "v0.3", "2407",
                                             "bf16", "math",     "coder", "code"};

std::string lower_basename(const std::string& name) {
  const size_t slash = name.find_last_of('/');
  return lowered(name.substr(slash == std::string::npos ? 0 : slash + 1));
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
constexpr Alias kAliases[] = {{"llama34b", "codellama-34b"},
                              {"llama70b", "llama2-70b"},
                              {"llama33b", "llama-30b"},
                              {"llama3.18b", "llama3-8b"},
                              {"llama3.170b", "llama3-70b"},
                              {"llama3.370b", "llama3-70b"},
                              {"qwen7b", "qwen1-7b"},
                              {"qwen14b", "qwen1-14b"},
                              {"qwen20.5b", "qwen2.5-0.5b"},
                              {"qwen330b", "qwen3-30b-a3b"},
                              {"qwen3235b", "qwen3-235b-a22b"},
                              {"qwen21.5b", "qwen2.5-1.5b"},
                              {"qwen27b", "qwen2.5-7b"},
                              {"qwen272b", "qwen2.5-72b"},
                              {"deepseekr1distillqwen1.5b", "r1-distill-qwen-1.5b"},
                              {"deepseekr1distillqwen7b", "qwen2.5-7b"},
                              {"deepseekr1distillqwen14b", "qwen2.5-14b"},
                              {"deepseekr1distillqwen32b", "qwen2.5-32b"},
                              {"deepseekr1distillllama8b", "llama3-8b"},
                              {"deepseekr1distillllama70b", "llama3-70b"}};

// The entry that a name means as it stands, or null.
const ModelSize* entry_of(const std::string& name) {
  const std::string wanted = essence(name);
  const Alias* alias =
      std::find_if(std::begin(kAliases), std::end(kAliases),
                   [&](const Alias& candidate) { return wanted == candidate.essence; });
  for (const ModelSize& model : model_catalogue())
    if (alias != std::end(kAliases) ? model.name == alias->model : wanted == essence(model.name))
      return &model;
  return nullptr;
}

// "8b" and "0.5b": the word that says how many parameters.
bool is_size_word(const std::string& word) {
  return word.size() > 1 && word.back() == 'b' &&
         std::all_of(word.begin(), word.end() - 1,
                     [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
}

// Without the words behind the size: "llama-3-8b-sft-mixture" becomes "llama-3-8b".
std::string up_to_size(const std::string& name) {
  std::string out;
  for (const std::string& word : split(lower_basename(name), '-')) {
    out += cat(out.empty() ? "" : "-", word);
    if (is_size_word(word)) return out;
  }
  return out;
}

}  // namespace

Result<ModelSize> find_model_by_any_name(const std::string& name) {
  auto exact = find_model(name);
  if (exact.ok()) return exact;
  if (const ModelSize* entry = entry_of(name)) return *entry;
  if (const ModelSize* entry = entry_of(up_to_size(name))) return *entry;
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

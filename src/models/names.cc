#include "models/names.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace braid::inline models {
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
                              {"qwen3next80b", "qwen3-next-80b-a3b"},
                              {"qwen3.535b", "qwen3.5-35b-a3b"},
                              {"qwen3.5122b", "qwen3.5-122b-a10b"},
                              {"qwen3.5397b", "qwen3.5-397b-a17b"},
                              {"qwen3.635b", "qwen3.5-35b-a3b"},
                              {"qwen3.635ba3b", "qwen3.5-35b-a3b"},
                              {"qwen3.627b", "qwen3.5-27b"},
                              {"qwen3vl2b", "qwen3-1.7b"},
                              {"glm4.1v9b", "glm4-9b"},
                              {"glm49b", "glm4-9b"},
                              {"minicpmo26", "qwen2.5-7b"},
                              {"eurus27b", "qwen2.5-7b"},
                              {"fapogenrm4b", "qwen3-4b"},
                              {"mistralnemo", "mistral-nemo-12b"},
                              {"moonlight16b", "moonlight-16b-a3b"},
                              {"deepseekv3671b", "deepseek-v3"},
                              {"deepseekr1", "deepseek-v3"},
                              {"deepseekv30324", "deepseek-v3"},
                              {"llama3.21b", "llama3.2-1b"},
                              {"llama3.23b", "llama3.2-3b"},
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

// Whether a name has a word, between dashes, that begins so.
bool has_word(const std::string& name, const std::string& begin) {
  for (const std::string& word : split(lower_basename(name), '-'))
    if (word.rfind(begin, 0) == 0) return true;
  return false;
}

// Without the word "vl": a vision-language model's text part has the sizes of the plain model.
std::string without_vision(const std::string& name) {
  std::string out;
  for (const std::string& word : split(lower_basename(name), '-'))
    if (word != "vl") out += cat(out.empty() ? "" : "-", word);
  return out;
}

// The entry of the name without its first words, as far as a family and a size remain.
const ModelSize* entry_behind(const std::string& name) {
  std::string rest = lower_basename(name);
  for (size_t dash = rest.find('-'); dash != std::string::npos; dash = rest.find('-')) {
    rest.erase(0, dash + 1);
    if (rest.empty() || is_size_word(rest.substr(0, rest.find('-')))) return nullptr;
    if (const ModelSize* entry = entry_of(rest)) return entry;
    if (const ModelSize* entry = entry_of(up_to_size(rest))) return entry;
  }
  return nullptr;
}

// "global_step_372", "checkpoint-10", "actor", "hf": folders inside that of a model.
bool is_inner_folder(const std::string& name) {
  for (const char* word : {"actor", "critic", "hf", "huggingface", "model", "merged", "latest"})
    if (name == word) return true;
  for (const char* begin : {"global_step", "checkpoint", "step", "epoch", "iter"})
    if (name.rfind(begin, 0) == 0 &&
        name.find_first_not_of("0123456789_-", std::string(begin).size()) == std::string::npos)
      return true;
  return false;
}

// The path of the folder that has a model's name: without the folders inside of it.
std::string model_folder(std::string path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (size_t slash = path.rfind('/');
       slash != std::string::npos && is_inner_folder(path.substr(slash + 1));
       slash = path.rfind('/'))
    path.erase(slash);
  return path;
}

}  // namespace

std::string unpriced_parts(const std::string& name) {
  const std::string base = lower_basename(name);
  const bool linear = base.find("qwen3.5") != std::string::npos ||
                      base.find("qwen3.6") != std::string::npos || has_word(base, "next");
  const bool vision = has_word(base, "vl") || base.find("4.1v") != std::string::npos ||
                      base.find("minicpm-o") != std::string::npos ||
                      (linear && !has_word(base, "next"));
  std::string out;
  if (vision) out = "the vision tower is not priced";
  if (linear) out += cat(out.empty() ? "" : "; ", "linear attention is planned as attention");
  return out;
}

Result<ModelSize> find_model_by_any_name(const std::string& name) {
  auto exact = find_model(name);
  if (exact.ok()) return exact;
  if (const ModelSize* entry = entry_of(name)) return *entry;
  if (const ModelSize* entry = entry_of(up_to_size(name))) return *entry;
  if (const ModelSize* entry = entry_behind(name)) return *entry;
  if (without_vision(name) != lower_basename(name))
    return find_model_by_any_name(without_vision(name));
  if (const std::string folder = model_folder(name); folder.size() < name.size())
    return find_model_by_any_name(folder);
  return exact.status();
}

Result<ModelSize> resolve_model_size(const std::string& text, const ReadText& read) {
  const std::string suffix = ".json";
  const bool file = text.size() > suffix.size() &&
                    text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
  if (!file) return find_model_by_any_name(text);
  BRAID_ASSIGN(const std::string config, read(text));
  return parse_model_size(config, text);
}

}  // namespace braid::inline models

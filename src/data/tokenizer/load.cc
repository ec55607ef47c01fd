// Building a Tokenizer from its files.
#include <algorithm>

#include "data/tokenizer/data.h"
#include "host/file.h"

namespace braid::inline data {
namespace {

constexpr int32_t kVocabularyLimit = 1 << 26;  // a larger id is a damaged file

Json member(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? Json() : *found;
}

Status set_text(int32_t id, const std::string& text, std::vector<std::string>* texts) {
  if (id >= kVocabularyLimit) return invalid_input(cat("token '", text, "' has the id ", id));
  if (id >= static_cast<int32_t>(texts->size())) texts->resize(id + 1);
  (*texts)[id] = text;
  return ok_status();
}

Status index_tokens(TokenizerData* data) {
  for (const auto& entry : data->model.vocabulary())
    BRAID_TRY(set_text(entry.second, entry.first, &data->texts));
  for (const AddedToken& token : data->added.tokens())
    BRAID_TRY(set_text(token.id, token.matched, &data->texts));
  return ok_status();
}

Result<std::shared_ptr<TokenizerData>> build(const Json& json) {
  if (!json.is_object() || !json.contains("model"))
    return invalid_input("this is no tokenizer.json: it has no 'model' object");
  auto data = std::make_shared<TokenizerData>();
  BRAID_ASSIGN(data->normalizer, Normalizer::parse(member(json, "normalizer")));
  BRAID_ASSIGN(data->pre_tokenizer, PreTokenizer::parse(member(json, "pre_tokenizer")));
  BRAID_ASSIGN(data->model, TokenModel::parse(json["model"]).at("model"));
  BRAID_ASSIGN(data->added, AddedTokens::parse(member(json, "added_tokens"), data->normalizer,
                                               data->model.vocabulary()));
  BRAID_ASSIGN(data->post_processor, parse_post_processor(member(json, "post_processor")));
  BRAID_ASSIGN(data->decoder, parse_decoder(member(json, "decoder")));
  BRAID_TRY(index_tokens(data.get()));
  return data;
}

// The JSON object of a file, or null when the folder has none of this name.
Result<Json> read_optional_json(const std::string& folder, const char* name) {
  const std::string path = join_path(folder, name);
  if (!path_exists(path)) return Json();
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(Json json, parse_json(text, path));
  if (!json.is_object()) return invalid_input(cat(path, ": must hold a JSON object"));
  return json;
}

// A token is written as its text or as an object with the text in "content".
std::string token_text(const Json& config, const char* key) {
  const Json value = config.is_object() ? member(config, key) : Json();
  if (value.is_string()) return value.get<std::string>();
  const Json content = value.is_object() ? member(value, "content") : Json();
  return content.is_string() ? content.get<std::string>() : "";
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

bool is_tokenizer_json(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return name == "tokenizer.json";
}

}  // namespace

Result<Tokenizer> parse_tokenizer(std::string_view json_text, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(json_text, where));
  BRAID_ASSIGN(auto data, build(json).at(where));
  return Tokenizer(std::move(data));
}

Result<Tokenizer> load_tokenizer(const std::string& folder_or_file) {
  const bool folder_given = is_folder(folder_or_file);
  const std::string path =
      folder_given ? join_path(folder_or_file, "tokenizer.json") : folder_or_file;
  if (!path_exists(path))
    return not_found(
        cat(path, " does not exist; give a folder with a tokenizer.json, or the file"));
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(const Tokenizer tokenizer, parse_tokenizer(text, path));
  if (!is_tokenizer_json(path)) return tokenizer;
  const std::string folder = folder_of(path);
  BRAID_ASSIGN(const Json config, read_optional_json(folder, "tokenizer_config.json"));
  BRAID_ASSIGN(const Json map, read_optional_json(folder, "special_tokens_map.json"));
  const auto special_id = [&](const char* key) -> std::optional<int32_t> {
    const std::string named = token_text(config, key);
    const std::string name = named.empty() ? token_text(map, key) : named;
    return name.empty() ? std::nullopt : tokenizer.token_to_id(name);
  };
  TokenizerData& data = *tokenizer.data_;
  data.bos_id = special_id("bos_token");
  data.eos_id = special_id("eos_token");
  data.pad_id = special_id("pad_token");
  BRAID_ASSIGN(data.chat_templates, ChatTemplates::load(folder, config, map));
  return tokenizer;
}

Result<std::vector<std::string>> tokenizer_files(const std::string& folder_or_file) {
  const std::string path =
      is_folder(folder_or_file) ? join_path(folder_or_file, "tokenizer.json") : folder_or_file;
  std::vector<std::string> out = {path};
  if (!is_tokenizer_json(path)) return out;
  const std::string folder = folder_of(path);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    out.push_back(join_path(folder, name));
  BRAID_ASSIGN(const std::vector<std::string> templates, ChatTemplates::files(folder));
  out.insert(out.end(), templates.begin(), templates.end());
  const auto missing = [](const std::string& file) { return !path_exists(file); };
  out.erase(std::remove_if(out.begin(), out.end(), missing), out.end());
  return out;
}

}  // namespace braid::inline data

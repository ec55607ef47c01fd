#include "data/tokenizer/post_processor.h"

namespace braid::inline data {
namespace {

using Ids = std::vector<int32_t>;

Result<Ids> special_token_ids(const Json& json, const std::string& name) {
  BRAID_ASSIGN(const Json tokens, json_field<Json>(json, "special_tokens"));
  BRAID_ASSIGN(const Json token, json_field<Json>(tokens, name));
  return json_field<Ids>(token, "ids");
}

Status add_template_item(const Json& json, const Json& item, bool* seen_text,
                         PostProcessor* result) {
  if (item.contains("SpecialToken")) {
    BRAID_ASSIGN(const std::string name, json_field<std::string>(item["SpecialToken"], "id"));
    BRAID_ASSIGN(const Ids ids, special_token_ids(json, name));
    Ids& side = *seen_text ? result->suffix : result->prefix;
    side.insert(side.end(), ids.begin(), ids.end());
    return ok_status();
  }
  const bool is_text = item.contains("Sequence") && item["Sequence"].value("id", "") == "A";
  if (!is_text || *seen_text)
    return invalid_input("the template 'single' must hold the sequence A once and special tokens");
  *seen_text = true;
  return ok_status();
}

Result<PostProcessor> parse_template(const Json& json) {
  BRAID_ASSIGN(const Json items, json_field<Json>(json, "single"));
  PostProcessor result;
  bool seen_text = false;
  for (const Json& item : items) BRAID_TRY(add_template_item(json, item, &seen_text, &result));
  if (!seen_text) return invalid_input("the template 'single' has no sequence A");
  return result;
}

Result<int32_t> boundary_id(const Json& json, const std::string& key) {
  BRAID_ASSIGN(const Json pair, json_field<Json>(json, key));
  if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_integer())
    return invalid_input(cat("'", key, "' must be [text, id]"));
  return pair[1].get<int32_t>();
}

Result<PostProcessor> parse_boundaries(const Json& json) {
  BRAID_ASSIGN(const int32_t first, boundary_id(json, "cls"));
  BRAID_ASSIGN(const int32_t last, boundary_id(json, "sep"));
  return PostProcessor{{first}, {last}};
}

Result<PostProcessor> parse_any(const Json& json);

Result<PostProcessor> parse_sequence(const Json& json) {
  BRAID_ASSIGN(const Json members, json_field<Json>(json, "processors"));
  PostProcessor result;
  for (const Json& member : members) {
    BRAID_ASSIGN(const PostProcessor outer, parse_any(member));
    result.prefix.insert(result.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    result.suffix.insert(result.suffix.end(), outer.suffix.begin(), outer.suffix.end());
  }
  return result;
}

Result<PostProcessor> parse_any(const Json& json) {
  BRAID_ASSIGN(const std::string type, json_field<std::string>(json, "type"));
  if (type == "Sequence") return parse_sequence(json);
  if (type == "TemplateProcessing") return parse_template(json);
  if (type == "RobertaProcessing" || type == "BertProcessing") return parse_boundaries(json);
  if (type == "ByteLevel") return PostProcessor{};  // changes offsets only
  return invalid_input(
      cat("type '", type,
          "' is not supported (Sequence, TemplateProcessing, RobertaProcessing, BertProcessing and "
          "ByteLevel are)"));
}

}  // namespace

Result<PostProcessor> parse_post_processor(const Json& json) {
  if (json.is_null()) return PostProcessor{};
  return parse_any(json).at("post_processor");
}

}  // namespace braid::inline data

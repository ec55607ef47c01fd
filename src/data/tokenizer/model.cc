#include "data/tokenizer/model.h"

namespace braid::inline data {
namespace {

// Older files leave the type out; the vocabulary of a Unigram model is a list.
std::string implied_type(const Json& json) {
  const auto vocabulary = json.find("vocab");
  if (vocabulary != json.end() && vocabulary->is_array()) return "Unigram";
  return json.contains("merges") || !json.contains("max_input_chars_per_word") ? "BPE"
                                                                               : "WordPiece";
}

}  // namespace

Result<TokenModel> TokenModel::parse(const Json& json) {
  if (!json.is_object()) return invalid_input("must be an object");
  TokenModel out;
  BRAID_ASSIGN(const std::string type, json_field_or(json, "type", implied_type(json)));
  if (type == "BPE") {
    BRAID_ASSIGN(out.model_, BpeModel::parse(json));
  } else if (type == "Unigram") {
    BRAID_ASSIGN(out.model_, UnigramModel::parse(json));
  } else if (type == "WordPiece") {
    BRAID_ASSIGN(out.model_, WordPieceModel::parse(json));
  } else {
    return invalid_input(
        cat("model type '", type, "' is not supported (BPE, Unigram and WordPiece are)"));
  }
  return out;
}

Status TokenModel::encode(std::string_view word, std::vector<int32_t>* out) const {
  return std::visit([&](const auto& model) { return model.encode(word, out); }, model_);
}

const TextMap<int32_t>& TokenModel::vocabulary() const {
  return std::visit([](const auto& model) -> const TextMap<int32_t>& { return model.vocabulary(); },
                    model_);
}

}  // namespace braid::inline data

#include "data/tokenizer/word_piece.h"

#include <algorithm>

#include "data/tokenizer/vocabulary.h"

namespace braid::inline data {
namespace {

bool is_inside_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

Result<WordPieceModel> WordPieceModel::parse(const Json& json) {
  WordPieceModel model;
  BRAID_ASSIGN(model.vocabulary_, parse_vocabulary(json));
  BRAID_ASSIGN(model.continuing_prefix_,
               json_field_or<std::string>(json, "continuing_subword_prefix", "##"));
  BRAID_ASSIGN(model.max_characters_,
               json_field_or<int64_t>(json, "max_input_chars_per_word", 100));
  BRAID_ASSIGN(const std::string unknown, json_field_or<std::string>(json, "unk_token", "[UNK]"));
  const auto found = model.vocabulary_.find(unknown);
  if (found != model.vocabulary_.end()) model.unknown_id_ = found->second;
  for (const auto& [text, id] : model.vocabulary_)
    model.longest_token_ = std::max(model.longest_token_, text.size());
  return model;
}

int32_t WordPieceModel::longest_piece(std::string_view word, size_t begin, size_t* end) const {
  std::string text = begin > 0 ? continuing_prefix_ : "";
  const size_t prefix = text.size();
  text += word.substr(begin, longest_token_);
  while (text.size() > prefix) {
    const size_t bytes = text.size() - prefix;
    const bool whole = begin + bytes == word.size() || !is_inside_character(word[begin + bytes]);
    const auto found = whole ? vocabulary_.find(text) : vocabulary_.end();
    if (found != vocabulary_.end()) {
      *end = begin + bytes;
      return found->second;
    }
    text.pop_back();
  }
  return -1;
}

Status WordPieceModel::encode(std::string_view word, std::vector<int32_t>* out) const {
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char byte) { return !is_inside_character(byte); });
  const size_t before = out->size();
  bool known = characters <= max_characters_;
  for (size_t begin = 0, end = 0; known && begin < word.size(); begin = end) {
    const int32_t id = longest_piece(word, begin, &end);
    known = id >= 0;
    if (known) out->push_back(id);
  }
  if (known) return ok_status();
  if (!unknown_id_)
    return invalid_input(
        "a word is not in the vocabulary, and neither is the model's unknown token (unk_token)");
  out->resize(before);
  out->push_back(*unknown_id_);
  return ok_status();
}

}  // namespace braid::inline data

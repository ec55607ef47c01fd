#include "data/tokenizer/added.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

// Start of the character that ends at `end`. REQUIRES end > 0.
size_t previous_character(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

size_t skip_space_left(std::string_view text, size_t begin) {
  while (begin > 0) {
    size_t start = previous_character(text, begin);
    size_t position = start;
    if (!is_white_space(next_code_point(text, &position))) break;
    begin = start;
  }
  return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    size_t position = end;
    if (!is_white_space(next_code_point(text, &position))) break;
    end = position;
  }
  return end;
}

bool is_whole_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t position = previous_character(text, begin);
    if (is_word_character(next_code_point(text, &position))) return false;
  }
  if (end < text.size()) {
    size_t position = end;
    if (is_word_character(next_code_point(text, &position))) return false;
  }
  return true;
}

Result<AddedToken> parse_added_token(const Json& json) {
  AddedToken token;
  BRAID_ASSIGN(token.id, json_field<int32_t>(json, "id"));
  BRAID_ASSIGN(token.content, json_field<std::string>(json, "content"));
  BRAID_ASSIGN(token.single_word, json_field_or<bool>(json, "single_word", false));
  BRAID_ASSIGN(token.lstrip, json_field_or<bool>(json, "lstrip", false));
  BRAID_ASSIGN(token.rstrip, json_field_or<bool>(json, "rstrip", false));
  BRAID_ASSIGN(token.special, json_field_or<bool>(json, "special", false));
  BRAID_ASSIGN(token.normalized, json_field_or<bool>(json, "normalized", !token.special));
  if (token.id < 0) return invalid_input(cat("token id ", token.id, " is negative"));
  return token;
}

}  // namespace

TextMatcher::TextMatcher() : nodes_(1), starts_(256, false) {}

int32_t TextMatcher::child(int32_t node, uint8_t byte) const {
  for (const auto& edge : nodes_[node].children)
    if (edge.first == byte) return edge.second;
  return -1;
}

void TextMatcher::add(std::string_view text, int32_t index) {
  if (text.empty()) return;
  starts_[static_cast<uint8_t>(text[0])] = true;
  int32_t node = 0;
  for (const char c : text) {
    const uint8_t byte = c;
    int32_t next = child(node, byte);
    if (next < 0) {
      next = nodes_.size();
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].index < 0) nodes_[node].index = index;
}

size_t TextMatcher::match(std::string_view text, size_t position, int32_t* index) const {
  if (!starts_[static_cast<uint8_t>(text[position])]) return 0;
  size_t length = 0;
  int32_t node = 0;
  for (size_t at = position; at < text.size(); ++at) {
    node = child(node, text[at]);
    if (node < 0) break;
    if (nodes_[node].index < 0) continue;
    *index = nodes_[node].index;
    length = at + 1 - position;
  }
  return length;
}

void AddedTokens::assign_ids(const TextMap<int32_t>& vocabulary) {
  int32_t next_id = vocabulary.size();
  for (AddedToken& token : tokens_) {
    const auto found = vocabulary.find(token.content);
    token.id = found != vocabulary.end() ? found->second : next_id;
    next_id = std::max(next_id, token.id + 1);
  }
}

Status AddedTokens::build_index(const Normalizer& normalizer) {
  // The reference searches special tokens before others; equal normalized texts go to the first.
  std::vector<int32_t> order;
  for (const bool special : {true, false})
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (tokens_[i].special == special) order.push_back(i);
  for (const int32_t index : order) {
    AddedToken& token = tokens_[index];
    index_of_id_.emplace(token.id, index);
    index_of_content_.emplace(token.content, index);
    token.matched = token.content;
    if (token.normalized) {
      BRAID_ASSIGN(token.matched, normalizer.apply(token.content));
    }
    (token.normalized ? normalized_ : raw_).add(token.matched, index);
  }
  return ok_status();
}

Result<AddedTokens> AddedTokens::parse(const Json& json, const Normalizer& normalizer,
                                       const TextMap<int32_t>& vocabulary) {
  AddedTokens added;
  if (json.is_null()) return added;
  if (!json.is_array()) return invalid_input("added_tokens must be an array");
  for (const Json& item : json) {
    BRAID_ASSIGN(AddedToken token, parse_added_token(item).at("added_tokens"));
    if (!token.content.empty()) added.tokens_.push_back(std::move(token));
  }
  added.assign_ids(vocabulary);
  BRAID_TRY(added.build_index(normalizer));
  return added;
}

const AddedToken* AddedTokens::find_id(int32_t id) const {
  const auto found = index_of_id_.find(id);
  return found == index_of_id_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::is_special(int32_t id) const {
  const AddedToken* token = find_id(id);
  return token != nullptr && token->special;
}

const AddedToken* AddedTokens::find_content(const std::string& content) const {
  const auto found = index_of_content_.find(content);
  return found == index_of_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::find_matches(std::string_view text, const TextMatcher& matcher,
                               std::vector<Piece>* out) const {
  out->clear();
  size_t done = 0;
  const auto add_gap = [&](size_t end) {
    if (done < end) out->push_back({done, end, -1, done == 0});
  };
  for (size_t position = 0; !matcher.empty() && position < text.size();) {
    int32_t index = -1;
    const size_t length = matcher.match(text, position, &index);
    if (length == 0) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = position, end = position + length;
    position = end;
    if (token.single_word && !is_whole_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(skip_space_left(text, begin), done);
    if (token.rstrip) end = skip_space_right(text, end);
    add_gap(begin);
    out->push_back({begin, end, token.id, begin == 0});
    done = end;
    position = std::max(position, done);
  }
  add_gap(text.size());
}

Status AddedTokens::append_normalized(std::string_view text, bool at_start,
                                      const Normalizer& normalizer, Pieces* out) const {
  const size_t base = out->text.size();
  std::string normalized;
  if (!normalizer.empty()) {
    BRAID_ASSIGN(normalized, normalizer.apply(text));
    text = normalized;
  }
  out->text += text;
  std::vector<Piece> found;
  find_matches(text, normalized_, &found);
  for (const Piece& piece : found)
    out->items.push_back(
        {base + piece.begin, base + piece.end, piece.token_id, at_start && piece.begin == 0});
  return ok_status();
}

Result<Pieces> AddedTokens::extract(std::string_view text, const Normalizer& normalizer) const {
  Pieces pieces;
  pieces.text.reserve(text.size() + 16);
  std::vector<Piece> raw;
  find_matches(text, raw_, &raw);
  for (const Piece& piece : raw) {
    if (piece.is_token()) {
      pieces.items.push_back({pieces.text.size(), pieces.text.size(), piece.token_id, false});
      continue;
    }
    BRAID_TRY(append_normalized(text.substr(piece.begin, piece.end - piece.begin), piece.at_start,
                                normalizer, &pieces));
  }
  return pieces;
}

}  // namespace braid::inline data

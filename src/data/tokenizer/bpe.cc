#include "data/tokenizer/bpe.h"

#include <array>

#include "data/tokenizer/bpe_merge.h"
#include "data/tokenizer/byte_tokens.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

namespace braid::inline data {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr uint64_t kEmptySlot = ~uint64_t{0};            // no pair of ids: both would be negative

// True when a run of space marks begins inside the text.
bool has_inner_space_mark(std::string_view text) {
  for (size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + 1))
    if (at < kSpaceMark.size() ||
        text.substr(at - kSpaceMark.size(), kSpaceMark.size()) != kSpaceMark)
      return true;
  return false;
}

// End of the segment that starts at begin: before the next run of space marks.
size_t segment_end(std::string_view word, size_t begin) {
  size_t at = begin;
  while (word.substr(at, kSpaceMark.size()) == kSpaceMark) at += kSpaceMark.size();
  return std::min(word.find(kSpaceMark, at), word.size());
}

}  // namespace

MergeTable::MergeTable(size_t count) {
  int bits = 4;
  while ((size_t{1} << bits) < 2 * count) ++bits;
  slots_.assign(size_t{1} << bits, Slot{kEmptySlot, {0, 0}});
  shift_ = 64 - bits;
}

// The slot that holds key, or the empty one where it belongs (Fibonacci hashing, linear probing).
size_t MergeTable::slot_of(uint64_t key) const {
  size_t slot = (key * 0x9E3779B97F4A7C15ull) >> shift_;
  while (slots_[slot].key != key && slots_[slot].key != kEmptySlot)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  const Slot& slot = slots_[slot_of(key)];
  return slot.key == key ? &slot.merge : nullptr;
}

// An unknown character that may still be fused with the next one.
struct BpeModel::Unknown {
  bool pending = false;
};

Result<BpeModel> BpeModel::parse(const Json& json) {
  BpeModel model;
  BRAID_ASSIGN(model.vocabulary_, parse_vocabulary(json));
  BRAID_TRY(model.parse_options(json));
  BRAID_TRY(model.parse_merges(json));
  model.byte_tokens_ = find_byte_tokens(model.vocabulary_);
  model.cache_ = std::make_shared<WordCache>();
  return model;
}

Status BpeModel::parse_options(const Json& json) {
  BRAID_ASSIGN(const double dropout, json_field_or<double>(json, "dropout", 0.0));
  if (dropout != 0.0) return invalid_input("BPE dropout is not supported; set it to null");
  BRAID_ASSIGN(fuse_unknown_, json_field_or<bool>(json, "fuse_unk", false));
  BRAID_ASSIGN(ignore_merges_, json_field_or<bool>(json, "ignore_merges", false));
  BRAID_ASSIGN(byte_fallback_, json_field_or<bool>(json, "byte_fallback", false));
  BRAID_ASSIGN(continuing_prefix_,
               json_field_or<std::string>(json, "continuing_subword_prefix", ""));
  BRAID_ASSIGN(word_suffix_, json_field_or<std::string>(json, "end_of_word_suffix", ""));
  BRAID_ASSIGN(const std::string unknown, json_field_or<std::string>(json, "unk_token", ""));
  if (unknown.empty()) return ok_status();
  const auto found = vocabulary_.find(unknown);
  if (found == vocabulary_.end())
    return invalid_input(cat("unk_token '", unknown, "' is not in the vocabulary"));
  unknown_id_ = found->second;
  return ok_status();
}

Status BpeModel::parse_merges(const Json& json) {
  const auto merges = json.find("merges");
  if (merges == json.end() || !merges->is_array())
    return invalid_input("the model has no 'merges' array");
  merges_ = MergeTable(merges->size());
  cut_at_spaces_ = !ignore_merges_ && continuing_prefix_.empty() && word_suffix_.empty() &&
                   vocabulary_.count(std::string(kSpaceMark)) > 0;
  int32_t rank = 0;
  for (const Json& merge : *merges) {
    std::string left, right;
    if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return invalid_input(cat("merge ", rank, " '", text, "' is not two tokens"));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return invalid_input(cat("merge ", rank, " is neither \"a b\" nor [\"a\", \"b\"]"));
    }
    BRAID_TRY(add_merge(left, right, rank++));
  }
  return ok_status();
}

Status BpeModel::add_merge(const std::string& left, const std::string& right, int32_t rank) {
  const bool prefixed = right.compare(0, continuing_prefix_.size(), continuing_prefix_) == 0;
  const std::string merged = left + right.substr(prefixed ? continuing_prefix_.size() : 0);
  for (const std::string* token : {&left, &right, &merged})
    if (vocabulary_.count(*token) == 0)
      return invalid_input(cat("merge ", rank, ": '", *token, "' is not in the vocabulary"));
  if (has_inner_space_mark(merged)) cut_at_spaces_ = false;
  merges_.set(vocabulary_.find(left)->second, vocabulary_.find(right)->second,
              {rank, vocabulary_.find(merged)->second});
  return ok_status();
}

int32_t BpeModel::character_id(std::string_view character, bool is_first, bool is_last) const {
  const bool plain = (is_first || continuing_prefix_.empty()) && (!is_last || word_suffix_.empty());
  if (plain) {
    const auto found = vocabulary_.find(character);
    return found == vocabulary_.end() ? -1 : found->second;
  }
  std::string text(character);
  if (!is_first) text = continuing_prefix_ + text;
  if (is_last) text += word_suffix_;
  const auto found = vocabulary_.find(text);
  return found == vocabulary_.end() ? -1 : found->second;
}

void BpeModel::add_unknown(std::string_view character, Unknown* pending,
                           std::vector<int32_t>* out) const {
  if (byte_fallback_ && append_bytes(character, byte_tokens_, out)) return;
  if (!unknown_id_) return;
  if (pending->pending && !fuse_unknown_) out->push_back(*unknown_id_);
  pending->pending = true;
}

void BpeModel::split_characters(std::string_view word, std::vector<int32_t>* out) const {
  Unknown unknown;
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = begin + utf8_length(static_cast<uint8_t>(word[begin]));
    const std::string_view character = word.substr(begin, end - begin);
    const int32_t id = character_id(character, begin == 0, end == word.size());
    if (id < 0) {
      add_unknown(character, &unknown, out);
    } else {
      if (unknown.pending) out->push_back(*unknown_id_);
      unknown.pending = false;
      out->push_back(id);
    }
    begin = end;
  }
  if (unknown.pending) out->push_back(*unknown_id_);
}

void BpeModel::encode_word(std::string_view word, std::vector<int32_t>* out) const {
  if (ignore_merges_) {
    const auto found = vocabulary_.find(word);
    if (found != vocabulary_.end()) return out->push_back(found->second);
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  split_characters(word, &symbols);
  apply_merges(merges_, &symbols);
  out->insert(out->end(), symbols.begin(), symbols.end());
}

void BpeModel::encode_cached(std::string_view word, std::vector<int32_t>* out) const {
  if (word.size() > WordCache::kMaxWordBytes) return encode_word(word, out);
  if (cache_->find(word, out)) return;
  const size_t before = out->size();
  encode_word(word, out);
  cache_->insert(word, out->data() + before, out->data() + out->size());
}

Status BpeModel::encode(std::string_view word, std::vector<int32_t>* out) const {
  if (word.empty()) return ok_status();
  if (!cut_at_spaces_) {
    encode_cached(word, out);
    return ok_status();
  }
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = segment_end(word, begin);
    encode_cached(word.substr(begin, end - begin), out);
    begin = end;
  }
  return ok_status();
}

}  // namespace braid::inline data

#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>

#include "data/tokenizer/byte_tokens.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

// What a character without a token costs below the least score (SentencePiece, unigram_model.cc).
constexpr double kUnknownPenalty = 10;

uint8_t byte_at(const std::string& text, size_t i) { return static_cast<uint8_t>(text[i]); }

}  // namespace

PrefixIndex::PrefixIndex(const TextMap<int32_t>& vocabulary) : begins_(257) {
  for (const auto& [text, id] : vocabulary)
    if (!text.empty()) tokens_.emplace_back(text, id);
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) ++begins_[byte_at(text, 0) + 1u];
  for (size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
}

PrefixIndex::Range PrefixIndex::narrowed(Range range, size_t depth, uint8_t byte) const {
  // A token of exactly `depth` bytes comes first; it goes on with nothing.
  auto first = tokens_.begin() + static_cast<int64_t>(range.first);
  const auto last = tokens_.begin() + static_cast<int64_t>(range.second);
  if (first != last && first->first.size() == depth) ++first;
  const auto begin = std::partition_point(
      first, last, [=](const auto& token) { return byte_at(token.first, depth) < byte; });
  const auto end = std::partition_point(
      begin, last, [=](const auto& token) { return byte_at(token.first, depth) == byte; });
  return {static_cast<size_t>(begin - tokens_.begin()), static_cast<size_t>(end - tokens_.begin())};
}

template <typename Visit>
void PrefixIndex::for_each_prefix(std::string_view text, Visit visit) const {
  if (text.empty()) return;
  const auto first = static_cast<uint8_t>(text[0]);
  Range range = {begins_[first], begins_[first + 1u]};
  for (size_t depth = 1; range.first < range.second; ++depth) {
    const auto& token = tokens_[range.first];
    if (token.first.size() == depth) visit(depth, token.second);
    if (depth == text.size()) return;
    range = narrowed(range, depth, static_cast<uint8_t>(text[depth]));
  }
}

Result<UnigramModel> UnigramModel::parse(const Json& json) {
  UnigramModel model;
  BRAID_TRY(model.parse_vocabulary(json));
  BRAID_ASSIGN(model.byte_fallback_, json_field_or<bool>(json, "byte_fallback", false));
  BRAID_ASSIGN(const int64_t unknown, json_field_or<int64_t>(json, "unk_id", -1));
  if (unknown >= static_cast<int64_t>(model.scores_.size()))
    return invalid_input(cat("unk_id ", unknown, " is no token of the vocabulary"));
  if (unknown >= 0) model.unknown_id_ = static_cast<int32_t>(unknown);
  model.unknown_score_ =
      *std::min_element(model.scores_.begin(), model.scores_.end()) - kUnknownPenalty;
  model.byte_tokens_ = find_byte_tokens(model.vocabulary_);
  model.index_ = PrefixIndex(model.vocabulary_);
  model.cache_ = std::make_shared<WordCache>();
  return model;
}

Status UnigramModel::parse_vocabulary(const Json& json) {
  const auto vocabulary = json.find("vocab");
  if (vocabulary == json.end() || !vocabulary->is_array() || vocabulary->empty())
    return invalid_input("the model has no 'vocab' array");
  for (const Json& entry : *vocabulary) {
    const auto id = static_cast<int32_t>(scores_.size());
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>()))
      return invalid_input(cat("vocab: entry ", id, " is not [text, score]"));
    vocabulary_[entry[0].get<std::string>()] = id;
    scores_.push_back(entry[1].get<double>());
  }
  return ok_status();
}

Result<std::vector<UnigramModel::BestPath>> UnigramModel::best_paths(std::string_view word) const {
  std::vector<BestPath> best(word.size() + 1);
  const auto offer = [&](size_t end, double score, int32_t id, size_t begin) {
    BestPath& path = best[end];
    if (path.last_begin < 0 || score > path.score) path = {score, id, static_cast<int64_t>(begin)};
  };
  for (size_t begin = 0; begin < word.size();) {
    const double so_far = best[begin].score;
    const auto character = static_cast<size_t>(utf8_length(static_cast<uint8_t>(word[begin])));
    bool covered = false;  // the character alone is a token
    index_.for_each_prefix(word.substr(begin), [&](size_t bytes, int32_t id) {
      offer(begin + bytes, so_far + scores_[static_cast<size_t>(id)], id, begin);
      covered = covered || bytes == character;
    });
    if (!covered) {
      if (!unknown_id_)
        return invalid_input(
            "a character is not in the vocabulary, and the model names no unknown token (unk_id)");
      offer(begin + character, so_far + unknown_score_, *unknown_id_, begin);
    }
    begin += character;
  }
  return best;
}

// A token, or a run of unknown characters.
Status UnigramModel::append_part(std::string_view part, std::vector<int32_t>* out) const {
  const auto found = vocabulary_.find(part);
  if (found != vocabulary_.end()) {
    out->push_back(found->second);
  } else if (!byte_fallback_ || !append_bytes(part, byte_tokens_, out)) {
    out->push_back(*unknown_id_);
  }
  return ok_status();
}

Status UnigramModel::encode_word(std::string_view word, std::vector<int32_t>* out) const {
  BRAID_ASSIGN(const std::vector<BestPath> best, best_paths(word));
  std::vector<std::string_view> parts;  // from the last to the first
  bool unknown_run = false;
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(best[end].last_begin);
    const bool unknown = unknown_id_ && best[end].last_id == *unknown_id_;
    if (unknown && unknown_run) {
      parts.back() = word.substr(begin, parts.back().size() + end - begin);
    } else {
      parts.push_back(word.substr(begin, end - begin));
    }
    unknown_run = unknown;
    end = begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) BRAID_TRY(append_part(*part, out));
  return ok_status();
}

Status UnigramModel::encode(std::string_view word, std::vector<int32_t>* out) const {
  if (word.empty()) return ok_status();
  if (word.size() > WordCache::kMaxWordBytes) return encode_word(word, out);
  if (cache_->find(word, out)) return ok_status();
  const size_t before = out->size();
  BRAID_TRY(encode_word(word, out));
  cache_->insert(word, out->data() + before, out->data() + out->size());
  return ok_status();
}

}  // namespace braid::inline data

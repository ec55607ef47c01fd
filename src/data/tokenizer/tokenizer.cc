#include "data/tokenizer/tokenizer.h"

#include "data/tokenizer/data.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {

const std::string* TokenizerData::decodable(int32_t id, bool skip_special) const {
  if (id < 0 || id >= static_cast<int32_t>(texts.size()) || texts[id].empty()) return nullptr;
  return skip_special && added.is_special(id) ? nullptr : &texts[id];
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool add_special) const {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos)
    return invalid_input(cat("invalid UTF-8 at byte ", invalid, " of the text"));
  BRAID_ASSIGN(Pieces pieces, data_->added.extract(text, data_->normalizer));
  BRAID_TRY(data_->pre_tokenizer.apply(&pieces));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special) ids = data_->post_processor.prefix;
  for (const Piece& piece : pieces.items) {
    if (piece.is_token())
      ids.push_back(piece.token_id);
    else
      BRAID_TRY(data_->model.encode(pieces.view(piece), &ids));
  }
  const auto& suffix = data_->post_processor.suffix;
  if (add_special) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

Result<std::string> Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  IncrementalDecoder decoder(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    BRAID_ASSIGN(const std::string part, decoder.push(id));
    text += part;
  }
  BRAID_ASSIGN(const std::string rest, decoder.finish());
  return text + rest;
}

std::optional<int32_t> Tokenizer::token_to_id(const std::string& token) const {
  if (const AddedToken* added = data_->added.find_content(token)) return added->id;
  const auto found = data_->model.vocabulary().find(token);
  if (found == data_->model.vocabulary().end()) return std::nullopt;
  return found->second;
}

std::string Tokenizer::id_to_token(int32_t id) const {
  if (const AddedToken* added = data_->added.find_id(id)) return added->content;
  const std::string* text = data_->decodable(id, false);
  return text != nullptr ? *text : "";
}

bool Tokenizer::is_special(int32_t id) const { return data_->added.is_special(id); }

int32_t Tokenizer::vocab_size() const { return data_->texts.size(); }
std::optional<int32_t> Tokenizer::bos_id() const { return data_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return data_->eos_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return data_->pad_id; }
const ChatTemplates& Tokenizer::chat_templates() const { return data_->chat_templates; }

struct IncrementalDecoder::State {
  State(std::shared_ptr<TokenizerData> data_in, bool skip)
      : data(std::move(data_in)), skip_special(skip), stream(data->decoder) {}

  std::shared_ptr<const TokenizerData> data;
  bool skip_special;
  DecodeStream stream;
};

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special)
    : state_(std::make_unique<State>(tokenizer.data_, skip_special)) {}
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;
IncrementalDecoder& IncrementalDecoder::operator=(IncrementalDecoder&&) noexcept = default;
IncrementalDecoder::~IncrementalDecoder() = default;

Result<std::string> IncrementalDecoder::push(int32_t id) {
  if (id < 0) return invalid_input(cat("token id ", id, " is negative"));
  const std::string* token = state_->data->decodable(id, state_->skip_special);
  if (token == nullptr) return std::string();
  return state_->stream.push(*token);
}

Result<std::string> IncrementalDecoder::finish() { return state_->stream.finish(); }

}  // namespace braid::inline data

// Text to token ids and back, as a Hugging Face tokenizer.json describes it. A Tokenizer is
// immutable and cheap to copy; const use is thread-safe. An IncrementalDecoder belongs to one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "data/chat/templates.h"

namespace braid::inline data {

struct TokenizerData;

class Tokenizer {
 public:
  // Ids of a text. add_special applies the post-processor's BOS/EOS template; special tokens that
  // are written in the text count either way. Invalid UTF-8 is an error that names the byte.
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special) const;

  // Text of ids, well-formed UTF-8 (bytes that form no character become U+FFFD). Ids without a
  // token, such as those of a padded vocabulary, have no text; negative ids are an error.
  Result<std::string> decode(const std::vector<int32_t>& ids, bool skip_special) const;

  std::optional<int32_t> token_to_id(const std::string& token) const;
  // "" for an id without a token.
  std::string id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  // Largest id + 1.
  int32_t vocab_size() const;

  // Of tokenizer_config.json, or special_tokens_map.json; empty where neither names a known token.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

  // Of the folder; without any for a file that was read alone.
  const ChatTemplates& chat_templates() const;

 private:
  friend class IncrementalDecoder;
  friend Result<Tokenizer> parse_tokenizer(std::string_view json_text, const std::string& where);
  friend Result<Tokenizer> load_tokenizer(const std::string& folder_or_file);
  explicit Tokenizer(std::shared_ptr<TokenizerData> data) : data_(std::move(data)) {}

  std::shared_ptr<TokenizerData> data_;  // not changed once load_tokenizer has returned
};

// Reads the text of a tokenizer.json; `where` names it in errors. An unsupported component is an
// error that names it.
Result<Tokenizer> parse_tokenizer(std::string_view json_text, const std::string& where);

// Reads tokenizer.json of a folder, and the files beside it where they exist:
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja. A file of another name is
// read alone.
Result<Tokenizer> load_tokenizer(const std::string& folder_or_file);

// The files that load_tokenizer() reads there, those that exist.
Result<std::vector<std::string>> tokenizer_files(const std::string& folder_or_file);

// Text of a growing id list, never splitting a UTF-8 character; the pieces concatenate to the full
// decode.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special);
  IncrementalDecoder(IncrementalDecoder&&) noexcept;
  IncrementalDecoder& operator=(IncrementalDecoder&&) noexcept;
  ~IncrementalDecoder();

  // The text that became certain with this id; often empty inside a character.
  Result<std::string> push(int32_t id);
  // The rest of the text. REQUIRES: no push afterwards.
  Result<std::string> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::inline data

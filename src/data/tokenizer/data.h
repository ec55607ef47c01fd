// What a Tokenizer consists of; internal to the tokenizer's own sources.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/added.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"

namespace braid::inline data {

struct TokenizerData {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenModel model;
  AddedTokens added;
  PostProcessor post_processor;
  TokenDecoder decoder;
  std::vector<std::string> texts;  // [vocab_size] what decoding sees of each id, "" for none
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> pad_id;
  ChatTemplates chat_templates;

  // The token that decoding sees for an id: nullptr for none, or for a special one to be skipped.
  const std::string* decodable(int32_t id, bool skip_special) const;
};

}  // namespace braid::inline data

// One line of data as token ids. Pure functions of line, tokenizer and configuration.
#pragma once

#include "config/options.h"
#include "data/dataset.h"

namespace braid {

// Reads a line. The prompt is "ids", or config.prompt_key as text, list of ids or conversation, or
// "messages"; text goes through config.prompt_template and, under prompt_format chat, the
// tokenizer's chat template. A sample's response is "response", or config.label_key, or the
// assistant's message that ends "messages". Errors name the key; the caller adds the line.
Result<DataRecord> make_record(const Json& line, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config);

}  // namespace braid

// One row of data as token ids. Pure functions of row, tokenizer and configuration.
#pragma once

#include <optional>

#include "config/options.h"
#include "data/columns.h"
#include "data/dataset.h"

namespace braid {

// Reads a row; columns.h says what its columns mean. A prompt that is text goes through
// config.prompt_template and, under prompt_format chat, the tokenizer's chat template; an answer
// that is text ends in the end-of-sequence token; answers that are conversations go on where the
// prompt ends. Every column but the prompt's is kept in `extra`, with the label as "label" too.
// Errors name the column; the caller adds the place.
Result<DataRecord> make_record(const OrderedJson& row, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config);

}  // namespace braid

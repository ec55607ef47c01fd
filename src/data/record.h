// One row of data as token ids. Pure functions of row, tokenizer and configuration.
#pragma once

#include <optional>

#include "config/options.h"
#include "data/columns.h"
#include "data/dataset.h"

namespace braid::inline data {

// Reads a row; plain_row.h and columns.h say what its columns mean. A prompt that is text goes
// through config.prompt_template and, under prompt_format chat, the tokenizer's chat template; an
// answer that is text ends in the end-of-sequence token; answers that are conversations go on where
// the prompt ends. Where the model writes the answer, a prompt that ends with an assistant's
// message is left open inside of it (`continue_final_message` of transformers), so that the model
// goes on with it; of whole conversations (columns `messages`, `conversations`) that message is
// left out. Every column but the prompt's is kept in `extra`, with the label as "label" too. Errors
// name the column; the caller adds the place.
Result<DataRecord> make_record(OrderedJson row, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config);

}  // namespace braid::inline data

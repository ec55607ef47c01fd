// Which columns of a row mean what. Rows come as Braid, TRL and verl write them; the columns that
// are there tell which. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "config/options.h"

namespace braid::inline data {

// What training asks of a row.
enum class DataNeed {
  kPrompts,
  kSamples,
  kPairs,
  kLabelled,  // single responses, wanted or not; a pair is one of each
  kScored,    // single responses, each with a number: how good it is
};

// How a row is read. In every format the prompt may be text, token ids or a conversation.
enum class RowFormat {
  kPrompt,              // prompt
  kVerl,                // prompt, reward_model.ground_truth
  kMessages,            // messages; the assistant's last one is what is learnt
  kPromptResponse,      // prompt and response, or the label as the response
  kPromptCompletion,    // prompt, completion
  kUnpaired,            // prompt, completion, label: whether the completion is a good one
  kPreference,          // prompt, chosen, rejected
  kImplicitPreference,  // chosen, rejected; what both begin with is the prompt
  kText,                // text, learnt as a whole
  kShareGpt,            // conversations of from and value, read as messages
  kAlpaca,              // instruction, input, output, read as prompt and response
  kScored,              // prompt, response or completion, score
};
constexpr int kRowFormats = 12;

// "prompt + completion (TRL)": for people.
const char* row_format_name(RowFormat format);

struct RowColumns {
  RowFormat format = RowFormat::kPrompt;
  std::string prompt;    // "" where the prompt is a part of other columns
  std::string answer;    // what is learnt, or the better of two; "" for none
  std::string rejected;  // the worse of two
  std::string label;     // column of the right answer or the score, or a path (a.b); "" for none
};

// What the columns of a row, null ones left out, mean for `need`. A column that config.prompt_key
// or config.label_key names other than by default must be there. Errors list the row's columns and
// say what is missing.
Result<RowColumns> recognise_columns(const OrderedJson& row, DataNeed need,
                                     const DataConfig& config);

// The value of a column, or of a path a.b of nested ones; nullptr where it is absent or null.
const OrderedJson* find_column(const OrderedJson& row, const std::string& path);

// One sentence: the format, the columns that told it, and whether they hold text, ids or
// conversations.
std::string describe_columns(const OrderedJson& row, const RowColumns& columns);

// [{"role", "content"}, …].
bool is_conversation(const OrderedJson& value);
// Whether a column of this name is a whole conversation, of which the assistant's last message is
// the answer.
bool is_message_column(const std::string& name);
// The value as true or false: text that says so counts, since tables hold it that way.
std::optional<bool> truth_of(const OrderedJson& value);
// The value as a finite number, which may be written as text too; nullopt for anything else.
std::optional<double> number_of(const OrderedJson& value);
// A conversation whose last message is the assistant's.
bool ends_with_assistant(const OrderedJson& messages);

}  // namespace braid::inline data

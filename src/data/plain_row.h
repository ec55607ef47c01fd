// Rows as other programs write them, made into rows of columns.h: ShareGPT, Alpaca, conversations
// that a table holds as JSON text. What would be trained on as something that it is not is an
// error. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/options.h"
#include "data/columns.h"

namespace braid::inline data {

enum class RowDialect { kNone, kShareGpt, kAlpaca };

struct PlainRow {
  OrderedJson row;
  RowDialect dialect = RowDialect::kNone;
  std::vector<std::string> unpacked;  // columns whose JSON text was read as a conversation
  // What its columns mean.
  RowColumns columns;

  // As describe_columns(), with what was unpacked.
  std::string description() const;
};

// A row and what its columns mean for `need`. The columns of config.ignore_columns are gone. Lists
// of {"from", "value"} become messages, and a column `system` their first one; instruction, input
// and output become prompt and response (where the row has no prompt of its own); text that is JSON
// of messages becomes these. Errors are those of recognise_columns() and, with the column:
// pictures, sounds and films, bytes for text, an unknown speaker, messages as Python prints them.
Result<PlainRow> plain_row(OrderedJson row, DataNeed need, const DataConfig& config);

}  // namespace braid::inline data

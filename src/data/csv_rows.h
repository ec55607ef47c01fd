// Rows of CSV and TSV texts as JSON objects. Pure function.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline data {

// Calls `visit` with every row of a text (base/csv.h), a JSON object on one line, until a call
// fails. The first line names
// the columns; a name that is empty becomes "Unnamed: 0" with its place, as pandas calls it. Every
// field is text; one that is empty and not in quotes is null. Empty lines are skipped. Errors name
// the line of the text: a field more or less than there are columns, a name written twice, a quote
// without an end, what is not UTF-8.
Status for_each_csv_row(std::string_view text, char separator,
                        const std::function<Status(std::string_view row)>& visit);

}  // namespace braid::inline data

// Comma-separated tables as text in memory: a header line, then rows, with double quotes as in RFC
// 4180. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline calibrate {

struct CsvRow {
  int line = 0;                    // 1-based line of the file where the row starts
  std::vector<std::string> cells;  // as many as the header has
};

struct CsvTable {
  std::vector<std::string> header;
  std::vector<CsvRow> rows;
};

// Errors name file:line: an empty text, an empty or repeated column name, a row of another width,
// an open quote.
Result<CsvTable> parse_csv(std::string_view text, const std::string& file);

}  // namespace braid::inline calibrate

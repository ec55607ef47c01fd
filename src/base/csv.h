// The records of comma-separated text (RFC 4180: cells in double quotes may hold separators, line
// breaks and doubled quotes), one after another. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline base {

struct CsvCell {
  std::string text;
  bool quoted = false;
};

class CsvReader {
 public:
  // A byte order mark is passed over. REQUIRES: the text outlives this.
  explicit CsvReader(std::string_view text, char separator = ',');

  bool at_end() const { return at_ >= text_.size(); }
  // The line, from 1, where the next record begins, or where record() failed.
  int64_t line() const { return line_; }

  // A line without a character is one empty cell. Fails at a quote that is never closed and at text
  // behind a closing quote; the caller adds the place. REQUIRES: !at_end().
  Result<std::vector<CsvCell>> record();

 private:
  bool at_cell_end() const;
  Result<CsvCell> quoted_cell();

  std::string_view text_;
  char separator_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace braid::inline base

#include "base/csv.h"

#include "base/encoding.h"

namespace braid::inline base {

CsvReader::CsvReader(std::string_view text, char separator)
    : text_(without_byte_order_mark(text)), separator_(separator) {}

bool CsvReader::at_cell_end() const {
  return at_end() || text_[at_] == separator_ || text_[at_] == '\n' || text_[at_] == '\r';
}

Result<CsvCell> CsvReader::quoted_cell() {
  const int64_t first_line = line_;
  CsvCell cell{"", true};
  for (++at_; !at_end(); ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') {
      cell.text += text_[at_];
    } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      cell.text += text_[at_++];
    } else {
      ++at_;
      if (at_cell_end()) return cell;
      return invalid_input("text after a closing quote; double the quote inside");
    }
  }
  line_ = first_line;
  return invalid_input("a quote is never closed");
}

Result<std::vector<CsvCell>> CsvReader::record() {
  std::vector<CsvCell> cells;
  while (true) {
    if (!at_end() && text_[at_] == '"') {
      BRAID_ASSIGN(CsvCell cell, quoted_cell());
      cells.push_back(std::move(cell));
    } else {
      const size_t start = at_;
      while (!at_cell_end()) ++at_;
      cells.push_back({std::string(text_.substr(start, at_ - start)), false});
    }
    if (at_end()) return cells;
    const char stop = text_[at_++];
    if (stop == separator_) continue;
    if (stop == '\r' && !at_end() && text_[at_] == '\n') ++at_;
    ++line_;
    return cells;
  }
}

}  // namespace braid::inline base

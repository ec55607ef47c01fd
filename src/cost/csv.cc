#include "cost/csv.h"

#include <set>

#include "base/encoding.h"
#include "base/text.h"

namespace braid {
namespace {

// Reads one record at a time; keeps the line count across quoted line breaks.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  bool at_end() const { return at_ >= text_.size(); }
  int line() const { return line_; }

  Result<std::vector<std::string>> record() {
    std::vector<std::string> cells;
    while (true) {
      BRAID_ASSIGN(std::string cell, next_cell());
      cells.push_back(std::move(cell));
      if (at_end()) return cells;
      const char stop = text_[at_++];
      if (stop == ',') continue;
      if (stop == '\r' && !at_end() && text_[at_] == '\n') ++at_;
      ++line_;
      return cells;
    }
  }

 private:
  Result<std::string> next_cell() {
    if (!at_end() && text_[at_] == '"') return quoted_cell();
    const size_t start = at_;
    while (!at_end() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  Result<std::string> quoted_cell() {
    const int start_line = line_;
    std::string cell;
    for (++at_; !at_end(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        cell += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell += text_[at_++];
      } else {
        ++at_;
        if (!at_end() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
          return invalid_input(
              cat(file_, ":", line_, ": text after a closing quote; double the quote inside"));
        return cell;
      }
    }
    return invalid_input(cat(file_, ":", start_line, ": a quote is never closed"));
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
};

Status check_header(const std::vector<std::string>& header, const std::string& file) {
  std::set<std::string> seen;
  for (const std::string& name : header) {
    if (name.empty()) return invalid_input(cat(file, ":1: a column has no name"));
    if (!seen.insert(name).second)
      return invalid_input(cat(file, ":1: column '", name, "' is there twice"));
  }
  return ok_status();
}

}  // namespace

Result<CsvTable> parse_csv(std::string_view text, const std::string& file) {
  text = without_byte_order_mark(text);
  Reader reader(text, file);
  if (trim(text).empty())
    return invalid_input(cat(file, ":1: the file is empty; a header line is needed"));
  CsvTable table;
  BRAID_ASSIGN(table.header, reader.record());
  BRAID_TRY(check_header(table.header, file));
  while (!reader.at_end()) {
    CsvRow row;
    row.line = reader.line();
    BRAID_ASSIGN(row.cells, reader.record());
    if (row.cells.size() == 1 && row.cells[0].empty()) continue;
    if (row.cells.size() != table.header.size())
      return invalid_input(cat(file, ":", row.line, ": ", row.cells.size(),
                               " cells, but the header has ", table.header.size(),
                               "; quote a cell that holds a comma"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace braid

#include "calibrate/csv.h"

#include <set>

#include "base/csv.h"
#include "base/encoding.h"
#include "base/text.h"

namespace braid::inline calibrate {
namespace {

Result<std::vector<std::string>> next_record(CsvReader& reader, const std::string& file) {
  auto cells = reader.record();
  if (!cells.ok()) return cells.status().at(cat(file, ":", reader.line()));
  std::vector<std::string> out;
  for (CsvCell& cell : *cells) out.push_back(std::move(cell.text));
  return out;
}

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
  CsvReader reader(text);
  if (trim(without_byte_order_mark(text)).empty())
    return invalid_input(cat(file, ":1: the file is empty; a header line is needed"));
  CsvTable table;
  BRAID_ASSIGN(table.header, next_record(reader, file));
  BRAID_TRY(check_header(table.header, file));
  while (!reader.at_end()) {
    CsvRow row;
    row.line = static_cast<int>(reader.line());
    BRAID_ASSIGN(row.cells, next_record(reader, file));
    if (row.cells.size() == 1 && row.cells[0].empty()) continue;
    if (row.cells.size() != table.header.size())
      return invalid_input(cat(file, ":", row.line, ": ", row.cells.size(),
                               " cells, but the header has ", table.header.size(),
                               "; quote a cell that holds a comma"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace braid::inline calibrate

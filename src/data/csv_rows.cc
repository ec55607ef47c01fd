#include "data/csv_rows.h"

#include <algorithm>
#include <vector>

#include "base/csv.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace braid::inline data {
namespace {

Status check_csv_names(const std::vector<std::string>& names, char separator) {
  for (size_t i = 0; i < names.size(); ++i)
    if (std::find(names.begin(), names.begin() + static_cast<int64_t>(i), names[i]) !=
        names.begin() + static_cast<int64_t>(i))
      return invalid_input(cat("two columns are called '", names[i], "'"));
  for (const char other : {',', ';', '\t', '|'})
    if (names.size() == 1 && other != separator && names[0].find(other) != std::string::npos)
      return invalid_input(cat("the only column is '", names[0], "'; .csv is separated by ',', ",
                               ".tsv by tabs: write it anew that way"));
  return ok_status();
}

std::vector<std::string> csv_names(const std::vector<CsvCell>& header) {
  std::vector<std::string> out;
  for (const CsvCell& field : header)
    out.push_back(field.text.empty() ? cat("Unnamed: ", out.size()) : field.text);
  return out;
}

Result<std::string> csv_row_json(const std::vector<std::string>& names,
                                 std::vector<CsvCell> fields) {
  if (fields.size() != names.size())
    return invalid_input(cat(fields.size(), fields.size() == 1 ? " field" : " fields", " for ",
                             names.size(), names.size() == 1 ? " column" : " columns", " (",
                             join(names, ", "), ")"));
  OrderedJson row = OrderedJson::object();
  for (size_t i = 0; i < names.size(); ++i) {
    const bool absent = fields[i].text.empty() && !fields[i].quoted;
    row[names[i]] = absent ? OrderedJson() : OrderedJson(std::move(fields[i].text));
  }
  return row.dump();
}

// Where the text is none in UTF-8; said before anything is read of it.
Status check_csv_text(std::string_view text) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return invalid_input("the file is in UTF-16; save it as CSV in UTF-8");
  const size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return ok_status();
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(bad), '\n');
  return invalid_input(cat("line ", line, ": not UTF-8"));
}

}  // namespace

Status for_each_csv_row(std::string_view text, char separator,
                        const std::function<Status(std::string_view row)>& visit) {
  BRAID_TRY(check_csv_text(text));
  CsvReader reader(text, separator);
  std::vector<std::string> names;
  while (!reader.at_end()) {
    const std::string where = cat("line ", reader.line());
    auto record = reader.record();
    if (!record.ok()) return record.status().at(cat("line ", reader.line()));
    std::vector<CsvCell>& fields = *record;
    if (fields.size() == 1 && fields[0].text.empty() && !fields[0].quoted) continue;
    if (names.empty()) {
      names = csv_names(fields);
      BRAID_TRY(check_csv_names(names, separator).at(where));
      continue;
    }
    BRAID_ASSIGN(const std::string row, csv_row_json(names, std::move(fields)).at(where));
    BRAID_TRY(visit(row));
  }
  return ok_status();
}

}  // namespace braid::inline data

#include "data/csv_rows.h"

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

namespace braid {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct CsvField {
  std::string text;
  bool quoted = false;
};

// Reads one row after another; line() counts as an editor does.
class CsvScanner {
 public:
  CsvScanner(std::string_view text, char separator) : text_(text), separator_(separator) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  bool ended() const { return at_ >= text_.size(); }
  int64_t line() const { return line_; }

  Result<std::vector<CsvField>> row() {
    std::vector<CsvField> out;
    while (true) {
      BRAID_ASSIGN(CsvField field, here() == '"' ? quoted_field() : plain_field());
      out.push_back(std::move(field));
      if (ended() || here() != separator_) break;
      ++at_;
    }
    if (here() == '\r') ++at_;
    if (here() == '\n') ++line_, ++at_;
    return out;
  }

 private:
  char here() const { return ended() ? '\0' : text_[at_]; }
  bool at_row_end() const {
    const bool carriage = here() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
    return ended() || here() == '\n' || carriage;
  }

  Result<CsvField> plain_field() {
    const size_t begin = at_;
    while (!at_row_end() && here() != separator_) {
      if (here() == '"')
        return invalid_input(
            "a quote inside of a field that is not in quotes; write the field in quotes and the "
            "quote twice");
      ++at_;
    }
    return CsvField{std::string(text_.substr(begin, at_ - begin)), false};
  }

  Result<CsvField> quoted_field() {
    CsvField out{"", true};
    const int64_t first_line = line_;
    for (++at_;; ++at_) {
      if (ended())
        return invalid_input(cat("the quote that opens in line ", first_line, " has no end"));
      if (here() == '"') {
        ++at_;
        if (here() != '"') break;
      }
      if (here() == '\n') ++line_;
      out.text += here();
    }
    if (!at_row_end() && here() != separator_)
      return invalid_input("text behind the closing quote of a field");
    return out;
  }

  std::string_view text_;
  char separator_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

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

std::vector<std::string> csv_names(const std::vector<CsvField>& header) {
  std::vector<std::string> out;
  for (const CsvField& field : header)
    out.push_back(field.text.empty() ? cat("Unnamed: ", out.size()) : field.text);
  return out;
}

Result<std::string> csv_row_json(const std::vector<std::string>& names,
                                 std::vector<CsvField> fields) {
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
  CsvScanner scanner(text, separator);
  std::vector<std::string> names;
  while (!scanner.ended()) {
    const std::string where = cat("line ", scanner.line());
    BRAID_ASSIGN(std::vector<CsvField> fields, scanner.row().at(where));
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

}  // namespace braid

#include "report/json_rows.h"

#include <sstream>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline report {

Result<std::vector<Json>> parse_rows(const std::string& text, const std::string& where) {
  std::vector<Json> out;
  size_t begin = 0;
  for (int64_t line = 1;; ++line) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) return out;
    const std::string row = text.substr(begin, end - begin);
    begin = end + 1;
    if (trim(row).empty()) continue;
    BRAID_ASSIGN(Json json, parse_json(row, cat(where, ":", line)));
    if (!json.is_object())
      return invalid_input(cat(where, ":", line, ": a row must be a JSON object"));
    out.push_back(std::move(json));
  }
}

Result<KeptRows> rows_before(const std::string& path, int64_t first_step) {
  KeptRows kept;
  if (!path_exists(path)) return kept;
  BRAID_ASSIGN(const std::string text, read_file(path));
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const auto row = parse_json(line, path);
    const int64_t step = row.ok() ? row->value("step", int64_t{0}) : first_step;
    if (step >= first_step || first_step == 0) continue;
    kept.text += line + "\n";
    kept.last_step = step;
  }
  return kept;
}

Status keep_rows(const std::string& path, const KeptRows& kept) {
  return path_exists(path) ? write_file_atomic(path, kept.text) : ok_status();
}

Result<int64_t> drop_rows_from(const std::string& path, int64_t first_step) {
  BRAID_ASSIGN(const KeptRows kept, rows_before(path, first_step));
  BRAID_TRY(keep_rows(path, kept));
  return kept.last_step;
}

}  // namespace braid::inline report

// Files of a run's folder that have a JSON object in each line, by step. Stateless; errors name
// file and line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline report {

// Rows of JSON lines. A last line without an end is left out: the run is writing it. Errors name
// `where` and the line.
Result<std::vector<Json>> parse_rows(const std::string& text, const std::string& where);

// What a file of rows has before a step, without lines that are no row; before step 0 nothing, also
// not an evaluation of step -1.
struct KeptRows {
  std::string text;
  int64_t last_step = -1;  // -1 = none
};
Result<KeptRows> rows_before(const std::string& path, int64_t first_step);
// The file has these rows alone from here on; nothing where there is no file.
Status keep_rows(const std::string& path, const KeptRows& kept);

// Both: rows from a step on, which a resumed run writes again, leave the file. Returns the last
// step that is left; -1: none.
Result<int64_t> drop_rows_from(const std::string& path, int64_t first_step);

}  // namespace braid::inline report

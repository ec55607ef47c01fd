// Rows of the files that Arrow reads (parquet, Arrow IPC files and streams), through
// libbraid_arrow.so, which is opened when the first such file is read. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::inline data {

// What a file holds, by its first bytes.
enum class ArrowKind { kNone, kParquet, kIpc };
ArrowKind arrow_kind(std::string_view content);

// Calls `visit` with every row of a file, a JSON object on one line, until a call fails. One row
// group or batch is in memory at a time. Values without a counterpart in JSON: binary is
// {"base64": text}, so that nothing takes it for text; NaN is null, dates and decimals are text.
// Where Braid was built without Arrow the error says how to get it.
Status for_each_arrow_row(const std::string& path,
                          const std::function<Status(std::string_view row)>& visit);

// Whether this program can read such files; for tests.
bool can_read_arrow();

}  // namespace braid::inline data

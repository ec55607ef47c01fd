// Rows of parquet files, through libbraid_parquet.so, which is opened when the first such file is
// read. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid {

// Calls `visit` with every row of a file, a JSON object on one line, until a call fails. One row
// group is in memory at a time. Values without a counterpart in JSON: binary is base64, NaN is
// null, dates and decimals are text. Where Braid was built without Arrow the error says how to get
// it.
Status for_each_parquet_row(const std::string& path,
                            const std::function<Status(std::string_view row)>& visit);

// Whether this program can read parquet files; for tests and `braid doctor`.
bool can_read_parquet();

}  // namespace braid

// The border between Braid and libbraid_arrow.so, which reads parquet and Arrow files with Arrow's
// libraries. It is opened when such a file is read (data/arrow_rows.h): a program that reads none
// starts without Arrow and runs where it is not installed. Plain C, since Arrow's C++ must not meet
// ours.
#pragma once

#include <cstddef>

extern "C" {

// Takes a row, a JSON object of `bytes` bytes; anything but 0 ends the reading.
typedef int (*BraidArrowVisit)(void* context, const char* row, size_t bytes);

// Calls `visit` with every row of a parquet file, an Arrow IPC file or an Arrow IPC stream in
// order, one row group or batch in memory at a time. Returns 0, or 1 with a message in `error` (at
// most error_bytes, its end marked by 0), or 2 when `visit` ended it.
typedef int (*BraidArrowRows)(const char* path, BraidArrowVisit visit, void* context, char* error,
                              size_t error_bytes);
int braid_arrow_rows(const char* path, BraidArrowVisit visit, void* context, char* error,
                     size_t error_bytes);
}

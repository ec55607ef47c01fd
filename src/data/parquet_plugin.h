// The border between Braid and libbraid_parquet.so, which reads parquet files with Arrow. The
// library is opened when a parquet file is read (data/parquet.h): a program that reads none starts
// without Arrow and runs where it is not installed. Plain C, since Arrow's C++ must not meet ours.
#pragma once

#include <cstddef>

extern "C" {

// Takes a row, a JSON object of `bytes` bytes; anything but 0 ends the reading.
typedef int (*BraidParquetVisit)(void* context, const char* row, size_t bytes);

// Calls `visit` with every row of a file in order, one row group in memory at a time. Returns 0, or
// 1 with a message in `error` (at most error_bytes, its end marked by 0), or 2 when `visit` ended
// it.
typedef int (*BraidParquetRows)(const char* path, BraidParquetVisit visit, void* context,
                                char* error, size_t error_bytes);
int braid_parquet_rows(const char* path, BraidParquetVisit visit, void* context, char* error,
                       size_t error_bytes);
}

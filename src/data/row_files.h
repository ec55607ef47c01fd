// The rows of a source in order, and again by their places: one file or many, each of JSON lines, a
// JSON array, CSV, parquet or Arrow, texts packed with gzip or not. A plain file of JSON lines is
// read where it is; the others become JSON lines in a nameless file in the folder for temporary
// files. Thread-safe once opened.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "host/line_reader.h"

namespace braid::inline data {

class RowFiles {
 public:
  RowFiles() = default;  // no row
  static RowFiles of(LineReader reader);

  // Of the files that paths_of_rows() names (row_sources.h); "-" is standard input, which is JSON
  // lines. What a file holds is told by its beginning, CSV and JSON arrays by the name (.csv, .tsv,
  // .json). A file whose beginning is not what its name says is an error, and so are archives.
  static Result<RowFiles> open(const std::string& source);

  // The source as it was named.
  const std::string& name() const { return name_; }
  size_t files() const { return files_.size(); }
  // Bytes of text in memory.
  int64_t held_bytes() const;

  // Calls `visit` with every line, blank ones included: `place` finds it again, `where` names file
  // and line ("a.jsonl:3", "a.parquet, row 3") in messages.
  using Visit =
      std::function<Status(std::string_view line, int64_t place, const std::string& where)>;
  Status for_each(const Visit& visit) const;

  Result<std::string> line_at(int64_t place) const;
  // File and line of a place, as for_each() names them; reads the file up to there.
  std::string describe(int64_t place) const;

 private:
  struct File {
    LineReader lines;
    bool rows = false;  // its lines are rows of something else
    // "a.jsonl:3" or "a.parquet, row 3".
    std::string where(int64_t number) const;
  };
  std::string name_;
  std::vector<File> files_;
};

}  // namespace braid::inline data

// Lines written to a nameless file in the folder for temporary files (TMPDIR), to be read again by
// their places: for sources that cannot be read from the middle. One thread writes.
#pragma once

#include <string>
#include <string_view>

#include "host/line_reader.h"

namespace braid::inline host {

class LineSpool {
 public:
  static Result<LineSpool> create();

  // Bytes as they are: whole lines or parts of them.
  Status add(std::string_view bytes);
  // The lines; `name` stands for them in messages. REQUIRES: no add() afterwards.
  Result<LineReader> finish(const std::string& name) &&;

 private:
  explicit LineSpool(FileHandle file) : file_(std::move(file)) {}
  Status flush();

  FileHandle file_;
  std::string buffer_;
};

}  // namespace braid::inline host

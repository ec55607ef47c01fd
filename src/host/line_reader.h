// The lines of a text, in order and again by their places. A regular file stays on the disk; what
// cannot be read twice (standard input, a pipe) and a text that is given are held in memory.
// Thread-safe once opened.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "host/process.h"

namespace braid::inline host {

class LineReader {
 public:
  LineReader() = default;  // a text without a line

  // "-" reads standard input. The file stays open: replacing it by another one of its name changes
  // nothing here. Errors name the path.
  static Result<LineReader> open(const std::string& path);
  // A file that is open already.
  static LineReader of_file(FileHandle file, std::string name);
  // `name` stands for the text in messages.
  static LineReader of_text(std::string text, std::string name);

  const std::string& name() const { return name_; }
  // Bytes of text in memory; 0 for a regular file.
  int64_t held_bytes() const { return static_cast<int64_t>(text_.size()); }

  // Calls `visit` with every line, without its '\n', and the place where it begins (bytes from the
  // start of the text), until a call fails. The view lives as long as the call.
  using Visit = std::function<Status(std::string_view line, int64_t begin_byte)>;
  Status for_each(const Visit& visit) const;

  // The line that begins at a place that for_each() told. What stands there in a file that was
  // changed since is the caller's to find out.
  Result<std::string> line_at(int64_t begin_byte) const;

 private:
  Result<size_t> read_at(int64_t begin_byte, char* out, size_t capacity) const;

  std::string name_;
  FileHandle file_;  // open: the text is there; otherwise it is text_
  std::string text_;
};

}  // namespace braid::inline host

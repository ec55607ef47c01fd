#include "host/line_spool.h"

#include "base/text.h"
#include "host/nameless_file.h"

namespace braid::inline host {
namespace {

constexpr size_t kSpoolBytes = size_t{1} << 20;

}  // namespace

Result<LineSpool> LineSpool::create() {
  BRAID_ASSIGN(FileHandle file, open_nameless_file(""));
  return LineSpool(std::move(file));
}

Status LineSpool::add(std::string_view bytes) {
  buffer_ += bytes;
  return buffer_.size() < kSpoolBytes ? ok_status() : flush();
}

Status LineSpool::flush() {
  BRAID_TRY(write_nameless_file(file_, buffer_));
  buffer_.clear();
  return ok_status();
}

Result<LineReader> LineSpool::finish(const std::string& name) && {
  BRAID_TRY(flush());
  return LineReader::of_file(std::move(file_), name);
}

}  // namespace braid::inline host

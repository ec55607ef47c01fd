#include "host/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "base/text.h"

namespace braid::inline host {
namespace {

constexpr size_t kMaxUnpackedBytes = size_t{4} << 30;
constexpr size_t kChunkBytes = size_t{1} << 18;
constexpr int kGzipOnly = 15 + 16;  // zlib's window bits with the gzip flag

// Owns zlib's state for reading one member after another.
class Inflater {
 public:
  explicit Inflater(std::string_view data) : rest_(data) {
    BRAID_CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib could not start");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool at_end() const { return rest_.empty(); }

  // Gives out the next member's content.
  Status read_member(const std::function<Status(std::string_view)>& take) {
    inflateReset(&stream_);
    std::vector<char> chunk(kChunkBytes);
    for (int code = Z_OK; code != Z_STREAM_END;) {
      const size_t offered = std::min<size_t>(rest_.size(), UINT_MAX);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      stream_.avail_in = static_cast<uInt>(offered);
      stream_.next_out = reinterpret_cast<Bytef*>(chunk.data());
      stream_.avail_out = static_cast<uInt>(chunk.size());
      code = inflate(&stream_, Z_NO_FLUSH);
      rest_.remove_prefix(offered - stream_.avail_in);
      BRAID_TRY(take({chunk.data(), chunk.size() - stream_.avail_out}));
      if (code == Z_BUF_ERROR || (code == Z_OK && rest_.empty() && stream_.avail_out > 0))
        return invalid_input("gzip data is cut short; fetch the file again");
      if (code != Z_OK && code != Z_STREAM_END)
        return invalid_input(cat("gzip data is damaged (", stream_.msg ? stream_.msg : "unknown",
                                 "); fetch the file again"));
    }
    return ok_status();
  }

 private:
  z_stream stream_{};
  std::string_view rest_;
};

}  // namespace

bool is_gzip(std::string_view data) { return data.substr(0, 2) == "\x1f\x8b"; }

Status gunzip_to(std::string_view data, const std::function<Status(std::string_view part)>& take) {
  if (!is_gzip(data)) return invalid_input("not gzip data; check the file");
  Inflater inflater(data);
  while (!inflater.at_end()) BRAID_TRY(inflater.read_member(take));
  return ok_status();
}

Result<std::string> gunzip(std::string_view data) {
  std::string out;
  BRAID_TRY(gunzip_to(data, [&](std::string_view part) {
    out += part;
    if (out.size() <= kMaxUnpackedBytes) return ok_status();
    return invalid_input(
        cat("gzip data unpacks to more than ", format_bytes(double(kMaxUnpackedBytes))));
  }));
  return out;
}

}  // namespace braid::inline host

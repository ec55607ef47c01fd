#include "data/row_files.h"

#include <functional>
#include <optional>

#include "base/text.h"
#include "data/arrow_rows.h"
#include "data/csv_rows.h"
#include "data/json_array.h"
#include "data/row_sources.h"
#include "host/file.h"
#include "host/gzip.h"
#include "host/line_spool.h"

namespace braid::inline data {
namespace {

// A place is the number of the file and the byte in it.
constexpr int kByteBits = 44;  // 16 TiB
constexpr size_t kMaxFiles = size_t{1} << 18;

int64_t byte_of(int64_t place) { return place & ((int64_t{1} << kByteBits) - 1); }

// The lines of a spool that `fill` writes rows to.
using RowVisit = std::function<Status(std::string_view row)>;
Result<LineReader> spool_rows(const std::string& path,
                              const std::function<Status(const RowVisit&)>& fill) {
  BRAID_ASSIGN(LineSpool spool, LineSpool::create());
  BRAID_TRY(fill([&](std::string_view row) {
    BRAID_TRY(spool.add(row));
    return spool.add("\n");
  }));
  return std::move(spool).finish(path);
}

// What a name without .gz says that the text holds.
enum class TextForm { kLines, kJson, kCsv, kTsv };

TextForm text_form(const std::string& path) {
  const std::string name = path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
  if (name.ends_with(".csv")) return TextForm::kCsv;
  if (name.ends_with(".tsv")) return TextForm::kTsv;
  return name.ends_with(".json") ? TextForm::kJson : TextForm::kLines;
}

// An array in .json may be rows, in lines it can only be a mistake.
bool starts_an_array(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '[';
}

struct OpenedFile {
  LineReader lines;
  bool rows = false;  // of something else than lines
};

// Rows of a text whose lines are none; nothing where they are.
Result<std::optional<OpenedFile>> open_text_rows(std::string_view text, const std::string& path) {
  const TextForm form = text_form(path);
  const bool array = form == TextForm::kJson && starts_an_array(text);
  if (form == TextForm::kLines || (form == TextForm::kJson && !array))
    return std::optional<OpenedFile>();
  OpenedFile out;
  out.rows = true;
  BRAID_ASSIGN(out.lines, spool_rows(path, [&](const RowVisit& visit) {
                 const Status read =
                     array ? for_each_array_element(text, visit)
                           : for_each_csv_row(text, form == TextForm::kCsv ? ',' : '\t', visit);
                 return read.at(path);
               }));
  return std::optional<OpenedFile>(std::move(out));
}

Result<OpenedFile> open_gzip(const MappedFile& packed, const std::string& path) {
  if (text_form(path) != TextForm::kLines) {
    BRAID_ASSIGN(const std::string text, gunzip(packed.text()).at(path));
    BRAID_ASSIGN(std::optional<OpenedFile> rows, open_text_rows(text, path));
    if (rows) return std::move(*rows);
  }
  BRAID_ASSIGN(LineSpool spool, LineSpool::create());
  BRAID_TRY(
      gunzip_to(packed.text(), [&](std::string_view text) { return spool.add(text); }).at(path));
  OpenedFile out;
  BRAID_ASSIGN(out.lines, std::move(spool).finish(path));
  return out;
}

// Files that people name by mistake, by how they begin.
struct OtherContent {
  std::string_view start;
  const char* what;
};
constexpr OtherContent kOtherContents[] = {
    {"PK\x03\x04", "a zip archive; unpack it first"},
    {"\x28\xB5\x2F\xFD", "packed with zstd; unpack it first (unzstd)"},
    {"\xFD"
     "7zXZ",
     "packed with xz; unpack it first (unxz)"},
    {"BZh", "packed with bzip2; unpack it first (bunzip2)"},
    {"FEA1", "Feather of version 1; write it anew with version 2"},
    {"version https://git-lfs", "a pointer of Git LFS, not the file; run 'git lfs pull'"},
    {"<!DOCTYPE", "a web page, not the data; download the file itself"},
    {"<html", "a web page, not the data; download the file itself"},
    {"SQLite format 3", "a SQLite data base; write its rows as JSON lines or CSV"},
};

// What the beginning of a file shows to be something else than its name says, or than rows.
Status check_content(const std::string& path, std::string_view content) {
  for (const OtherContent& other : kOtherContents)
    if (content.starts_with(other.start)) return invalid_input(cat(path, ": is ", other.what));
  if (path.ends_with(".tar.gz") || path.ends_with(".tgz"))
    return invalid_input(cat(path, ": is an archive of files; unpack it first (tar xzf)"));
  if (path.ends_with(".gz") && !is_gzip(content))
    return invalid_input(
        cat(path, ": its name ends in .gz, but it is not packed with gzip; rename it"));
  for (const char* ending : {".parquet", ".arrow", ".feather"})
    if (path.ends_with(ending) && arrow_kind(content) == ArrowKind::kNone)
      return invalid_input(
          cat(path, ": its name ends in ", ending, ", but its beginning is none of such a file"));
  return ok_status();
}

Result<OpenedFile> open_rows(const std::string& path) {
  OpenedFile out;
  if (is_regular_file(path)) {
    BRAID_ASSIGN(const MappedFile file, MappedFile::open(path));
    BRAID_TRY(check_content(path, file.text()));
    if (is_gzip(file.text())) return open_gzip(file, path);
    out.rows = arrow_kind(file.text()) != ArrowKind::kNone;
    if (!out.rows) {
      BRAID_ASSIGN(std::optional<OpenedFile> rows, open_text_rows(file.text(), path));
      if (rows) return std::move(*rows);
    }
  }
  if (out.rows) {
    BRAID_ASSIGN(out.lines, spool_rows(path, [&](const RowVisit& visit) {
                   return for_each_arrow_row(path, visit);
                 }));
  } else {
    BRAID_ASSIGN(out.lines, LineReader::open(path));
  }
  return out;
}

}  // namespace

RowFiles RowFiles::of(LineReader reader) {
  RowFiles out;
  out.name_ = reader.name();
  out.files_.push_back({std::move(reader), false});
  return out;
}

Result<RowFiles> RowFiles::open(const std::string& source) {
  RowFiles out;
  out.name_ = source;
  BRAID_ASSIGN(const std::vector<std::string> paths, paths_of_rows(source));
  if (paths.size() > kMaxFiles)
    return invalid_input(cat(source, ": ", paths.size(), " files are too many"));
  for (const std::string& path : paths) {
    BRAID_ASSIGN(OpenedFile file, open_rows(path));
    out.files_.push_back({std::move(file.lines), file.rows});
  }
  return out;
}

int64_t RowFiles::held_bytes() const {
  int64_t bytes = 0;
  for (const File& file : files_) bytes += file.lines.held_bytes();
  return bytes;
}

std::string RowFiles::File::where(int64_t number) const {
  return cat(lines.name(), rows ? ", row " : ":", number);
}

Status RowFiles::for_each(const Visit& visit) const {
  for (size_t i = 0; i < files_.size(); ++i) {
    const File& file = files_[i];
    int64_t number = 0;
    const auto base = static_cast<int64_t>(i) << kByteBits;
    BRAID_TRY(file.lines.for_each([&](std::string_view line, int64_t begin_byte) {
      return visit(line, base + begin_byte, file.where(++number));
    }));
  }
  return ok_status();
}

Result<std::string> RowFiles::line_at(int64_t place) const {
  return files_[static_cast<size_t>(place >> kByteBits)].lines.line_at(byte_of(place));
}

std::string RowFiles::describe(int64_t place) const {
  const File& file = files_[static_cast<size_t>(place >> kByteBits)];
  int64_t number = 0;
  const Status found = file.lines.for_each([&](std::string_view, int64_t begin_byte) {
    ++number;
    return begin_byte < byte_of(place) ? ok_status() : Status(Code::kStopped, "there it is");
  });
  return file.where(found.ok() ? number + 1 : number);
}

}  // namespace braid::inline data

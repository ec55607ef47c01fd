#include "data/row_files.h"

#include <glob.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/text.h"
#include "data/json_array.h"
#include "data/parquet.h"
#include "host/file.h"
#include "host/gzip.h"
#include "host/line_spool.h"

namespace braid {
namespace {

// A place is the number of the file and the byte in it.
constexpr int kByteBits = 44;  // 16 TiB
constexpr size_t kMaxFiles = size_t{1} << 18;

int64_t byte_of(int64_t place) { return place & ((int64_t{1} << kByteBits) - 1); }

constexpr const char* kEndings[] = {".jsonl",   ".ndjson",   ".json",
                                    ".parquet", ".jsonl.gz", ".json.gz"};

bool is_row_file(const std::string& name) {
  return name.front() != '.' && std::any_of(std::begin(kEndings), std::end(kEndings),
                                            [&](const char* end) { return name.ends_with(end); });
}

Result<LineReader> spool_parquet(const std::string& path) {
  BRAID_ASSIGN(LineSpool spool, LineSpool::create());
  BRAID_TRY(for_each_parquet_row(path, [&](std::string_view row) {
    BRAID_TRY(spool.add(row));
    return spool.add("\n");
  }));
  return std::move(spool).finish(path);
}

Result<LineReader> spool_array(std::string_view text, const std::string& path) {
  BRAID_ASSIGN(LineSpool spool, LineSpool::create());
  const Status read = for_each_array_element(text, [&](std::string_view element) {
    BRAID_TRY(spool.add(element));
    return spool.add("\n");
  });
  BRAID_TRY(read.at(path));
  return std::move(spool).finish(path);
}

bool starts_an_array(std::string_view text) {
  const std::string_view blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  return first != std::string_view::npos && text[first] == '[';
}

Result<LineReader> spool_gzip(const MappedFile& packed, const std::string& path) {
  if (path.ends_with(".json.gz")) {
    BRAID_ASSIGN(const std::string text, gunzip(packed.text()).at(path));
    if (starts_an_array(text)) return spool_array(text, path);
  }
  BRAID_ASSIGN(LineSpool spool, LineSpool::create());
  BRAID_TRY(
      gunzip_to(packed.text(), [&](std::string_view text) { return spool.add(text); }).at(path));
  return std::move(spool).finish(path);
}

// Whether lines of their own are wanted of a regular file; what it holds tells, not its name, but
// for .json: an array there may be rows, in lines it can only be a mistake.
enum class RowKind { kLines, kArray, kParquet, kGzip };

RowKind row_kind_of(const std::string& path, std::string_view content) {
  if (content.substr(0, 4) == "PAR1") return RowKind::kParquet;
  if (is_gzip(content)) return RowKind::kGzip;
  return path.ends_with(".json") && starts_an_array(content) ? RowKind::kArray : RowKind::kLines;
}

struct OpenedFile {
  LineReader lines;
  bool rows = false;
};

Result<OpenedFile> open_rows(const std::string& path) {
  OpenedFile out;
  RowKind kind = RowKind::kLines;
  if (is_regular_file(path)) {
    BRAID_ASSIGN(const MappedFile file, MappedFile::open(path));
    kind = row_kind_of(path, file.text());
    if (kind == RowKind::kArray) {
      BRAID_ASSIGN(out.lines, spool_array(file.text(), path));
    } else if (kind == RowKind::kGzip) {
      BRAID_ASSIGN(out.lines, spool_gzip(file, path));
    }
  }
  if (kind == RowKind::kParquet) {
    BRAID_ASSIGN(out.lines, spool_parquet(path));
  } else if (kind == RowKind::kLines) {
    BRAID_ASSIGN(out.lines, LineReader::open(path));
  }
  out.rows = kind == RowKind::kArray || kind == RowKind::kParquet;
  return out;
}

Result<std::vector<std::string>> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owned(&found, ::globfree);
  std::vector<std::string> out;
  if (result == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i)
      if (!is_folder(found.gl_pathv[i])) out.push_back(found.gl_pathv[i]);
  if (out.empty()) return not_found(cat(pattern, ": no file matches"));
  return out;
}

// The split that a file's name tells: the word before its first '-', '_' or '.'.
std::string split_of(const std::string& name) {
  const std::string word = lowered(name.substr(0, name.find_first_of("-_.")));
  for (const char* split : {"train", "test", "validation", "valid", "val", "dev", "eval"})
    if (word == split) return word;
  return "";
}

Result<std::vector<std::string>> files_of_folder(const std::string& folder) {
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  std::vector<std::string> out, folders;
  std::set<std::string> splits;
  for (const std::string& name : names) {
    const std::string path = join_path(folder, name);
    if (is_folder(path)) {
      if (name.front() != '.') folders.push_back(name);
    } else if (is_row_file(name)) {
      out.push_back(path);
      splits.insert(split_of(name));
    }
  }
  if (out.empty())
    return not_found(cat(folder, ": the folder holds no .jsonl, .json, .jsonl.gz or .parquet file",
                         folders.empty() ? "" : "; its folders: ", join(folders, ", ")));
  if (splits.size() > 1)
    return invalid_input(cat(folder, ": the folder holds files of several splits (",
                             join({splits.begin(), splits.end()}, ", "), "); say which, as in ",
                             join_path(folder, *splits.rbegin() + "*")));
  return out;
}

}  // namespace

RowFiles RowFiles::of(LineReader reader) {
  RowFiles out;
  out.name_ = reader.name();
  out.files_.push_back({std::move(reader), false});
  return out;
}

Result<std::vector<std::string>> row_file_paths(const std::string& source) {
  if (is_folder(source)) return files_of_folder(source);
  const bool pattern =
      source != "-" && !path_exists(source) && source.find_first_of("*?[") != std::string::npos;
  return pattern ? files_of_pattern(source) : std::vector<std::string>{source};
}

Result<RowFiles> RowFiles::open(const std::string& source) {
  RowFiles out;
  out.name_ = source;
  BRAID_ASSIGN(const std::vector<std::string> paths, row_file_paths(source));
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

}  // namespace braid

#include "host/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "host/file_claim.h"

namespace braid::inline host {
namespace {

namespace fs = std::filesystem;

// Closes a file descriptor at the end of a scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ > STDIN_FILENO) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string write_problem(int error) {
  std::string text = std::strerror(error);
  if (error == EFBIG) text += "; the limit on the size of a file (ulimit -f) is too low";
  if (error == ENOSPC || error == EDQUOT) text += "; free some space on that disk";
  return text;
}

namespace {

Status failed(const std::string& path, const char* what) {
  const int error = errno;
  if (error == EISDIR) return invalid_input(cat(path, ": is a folder; give the path of a file"));
  const std::string message = cat(path, ": cannot ", what, ": ", write_problem(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(message);
  if (error == ENAMETOOLONG || error == ELOOP) return invalid_input(message);
  return io_error(message);
}

Status write_all(int fd, std::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t count = ::write(fd, contents.data(), contents.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(path, "write");
    contents.remove_prefix(static_cast<size_t>(count));
  }
  return ok_status();
}

// Messages name `path`, what the caller writes, and not the temporary.
Status write_and_sync(const FileHandle& file, std::string_view contents, const std::string& path) {
  if (!file.is_open()) return failed(path, "create");
  BRAID_TRY(write_all(file.get(), contents, path));
  if (::fsync(file.get()) != 0) return failed(path, "sync");
  return ok_status();
}

// Devices and pipes, /dev/stdout among them whatever it leads to: a rename would replace them.
bool is_stream(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return false;
  return !S_ISREG(info.st_mode) || path.rfind("/dev/", 0) == 0;
}

Status write_stream(const std::string& path, std::string_view contents) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file.get() < 0) return failed(path, "open");
  return write_all(file.get(), contents, path);
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor file(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return failed(path, "open");
  std::string contents;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(path, "read");
    if (count == 0) return contents;
    contents.append(buffer, static_cast<size_t>(count));
  }
}

std::function<Result<std::string>(const std::string&)> file_reader() {
  return [](const std::string& path) { return read_file(path); };
}

Status append_file(const std::string& path, std::string_view contents) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0) return failed(path, "open");
  const off_t before = ::lseek(file.get(), 0, SEEK_END);
  const Status written = write_all(file.get(), contents, path);
  if (!written.ok() && before >= 0 && ::ftruncate(file.get(), before) != 0)
    return written.at("what was appended is incomplete");
  return written;
}

Status write_file_atomic(const std::string& path, std::string_view contents) {
  if (is_stream(path)) return write_stream(path, contents);
  const std::string temporary = temporary_path(path);
  const FileHandle file = create_claimed(temporary);  // until it has its name
  if (Status written = write_and_sync(file, contents, path); !written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return failed(path, "rename into place");
  return sync_path(parent_folder(path));
}

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return io_error(cat(path, ": cannot create folder: ", error.message()));
  return ok_status();
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return not_found(cat(path, ": cannot list folder: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Status sync_path(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return failed(path, "open");
  if (::fsync(file.get()) != 0) return failed(path, "sync");
  return ok_status();
}

Result<int64_t> free_disk_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return failed(path, "inspect the file system");
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

std::string join_path(std::string_view folder, std::string_view name) {
  return (fs::path(folder) / fs::path(name)).string();
}

std::string parent_folder(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return failed(path, "open");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return failed(path, "inspect");
  if (S_ISDIR(info.st_mode)) return invalid_input(cat(path, ": is a folder, not a file"));
  MappedFile mapped;
  mapped.size_bytes_ = static_cast<size_t>(info.st_size);
  if (mapped.size_bytes_ == 0) return mapped;
  void* address = ::mmap(nullptr, mapped.size_bytes_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return failed(path, "map");
  mapped.data_ = static_cast<const uint8_t*>(address);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

}  // namespace braid::inline host

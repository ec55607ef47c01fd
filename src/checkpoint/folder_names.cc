#include "checkpoint/folder_names.h"

#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"

namespace braid::inline checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step-";
constexpr const char* kOpenSuffix = "-open";
constexpr const char* kRemovedPrefix = ".removed-";
constexpr const char* kTensorSuffix = ".safetensors";
constexpr const char* kRankMark = ".rank-";

// At least so many digits.
std::string padded(int64_t number, size_t digits) {
  std::string out = std::to_string(number);
  if (out.size() < digits) out.insert(0, digits - out.size(), '0');
  return out;
}

bool all_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string folder_name(const SavePoint& at) {
  return kPrefix + padded(at.step, 6) + (at.open ? kOpenSuffix : "");
}

std::optional<SavePoint> point_of(const std::string& name) {
  const std::string prefix = kPrefix, suffix = kOpenSuffix;
  if (name.rfind(prefix, 0) != 0) return std::nullopt;
  std::string digits = name.substr(prefix.size());
  const bool open = digits.ends_with(suffix);
  if (open) digits.resize(digits.size() - suffix.size());
  if (!all_digits(digits) || digits.size() > 18) return std::nullopt;
  return SavePoint{std::stoll(digits), open};
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warning(cat(path, ": cannot be removed: ", error.message()));
}

bool is_removed(const std::string& name) { return name.rfind(kRemovedPrefix, 0) == 0; }

Status remove_checkpoint(const std::string& folder, const CheckpointInfo& info) {
  const std::string hidden = join_path(folder, kRemovedPrefix + folder_name(info.at));
  std::error_code error;
  fs::rename(info.path, hidden, error);
  if (error) return io_error(cat(info.path, ": cannot be removed: ", error.message()));
  remove_folder(hidden);
  return ok_status();
}

std::string shard_name(const std::string& group, const SaveRank& self) {
  return cat(group, self.ranks > 1 ? kRankMark + padded(self.rank, 4) : "", kTensorSuffix);
}

std::optional<ShardOf> shard_of(const std::string& file) {
  const std::string suffix = kTensorSuffix;
  if (!file.ends_with(suffix)) return std::nullopt;
  const std::string name = file.substr(0, file.size() - suffix.size());
  const size_t mark = name.rfind(kRankMark);
  if (mark == std::string::npos) return ShardOf{name};
  const std::string digits = name.substr(mark + std::string(kRankMark).size());
  const bool numbered = all_digits(digits) && digits.size() <= 18;
  return numbered ? ShardOf{name.substr(0, mark), std::stoll(digits)} : ShardOf{name};
}

}  // namespace braid::inline checkpoint

#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "host/file.h"
#include "host/staged_folder.h"
#include "nn/safetensors.h"

namespace braid::inline checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "step-";
constexpr const char* kOpenSuffix = "-open";
constexpr const char* kTemporaryPrefix = ".writing-";
constexpr const char* kRemovedPrefix = ".removed-";
constexpr const char* kLockFile = ".lock";
constexpr const char* kStateFile = "state.json";
constexpr const char* kTensorSuffix = ".safetensors";

std::string folder_name(const SavePoint& at) {
  std::string digits = std::to_string(at.step);
  if (digits.size() < 6) digits.insert(0, 6 - digits.size(), '0');
  return kPrefix + digits + (at.open ? kOpenSuffix : "");
}

// The point of "step-000012" or "step-000012-open"; nothing for any other name.
std::optional<SavePoint> point_of(const std::string& name) {
  const std::string prefix = kPrefix, suffix = kOpenSuffix;
  if (name.rfind(prefix, 0) != 0) return std::nullopt;
  std::string digits = name.substr(prefix.size());
  const bool open = digits.ends_with(suffix);
  if (open) digits.resize(digits.size() - suffix.size());
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos ||
      digits.size() > 18)
    return std::nullopt;
  return SavePoint{std::stoll(digits), open};
}

}  // namespace

int64_t size_bytes(const CheckpointState& state) {
  int64_t total = kCheckpointOverheadBytes + static_cast<int64_t>(state.numbers.dump().size());
  for (const auto& [group, tensors] : state.tensors)
    for (const auto& [name, tensor] : tensors) total += static_cast<int64_t>(tensor.nbytes());
  return total;
}

namespace {

Status write_files(const std::string& folder, int64_t step,
                   const std::map<std::string, double>& metrics, const CheckpointState& state) {
  BRAID_TRY(make_folder(folder));
  std::vector<std::string> files = {kStateFile};
  BRAID_TRY(write_file_atomic(join_path(folder, kStateFile), state.numbers.dump() + "\n"));
  for (const auto& [group, tensors] : state.tensors) {
    files.push_back(group + kTensorSuffix);
    BRAID_TRY(write_safetensors(join_path(folder, files.back()), tensors));
  }
  BRAID_TRY(write_manifest(folder, step, files, metrics));
  return sync_path(folder);
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warning(cat(path, ": cannot be removed: ", error.message()));
}

// What an interrupted save or removal left behind.
Status remove_leftovers(const std::string& folder) {
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  for (const std::string& name : names)
    if (name.rfind(kTemporaryPrefix, 0) == 0 || name.rfind(kRemovedPrefix, 0) == 0)
      remove_folder(join_path(folder, name));
  return ok_status();
}

// Takes the name away first: what is half removed no longer looks like a checkpoint.
Status remove_checkpoint(const std::string& folder, const CheckpointInfo& info) {
  const std::string hidden = join_path(folder, kRemovedPrefix + folder_name(info.at));
  std::error_code error;
  fs::rename(info.path, hidden, error);
  if (error) return io_error(cat(info.path, ": cannot be removed: ", error.message()));
  remove_folder(hidden);
  return ok_status();
}

Result<Manifest> verified_manifest(const std::string& path) {
  BRAID_ASSIGN(const Manifest manifest, read_manifest(path));
  BRAID_TRY(check_files(path, manifest));
  return manifest;
}

Result<NamedTensors> read_tensors(const std::string& path) {
  BRAID_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  NamedTensors out;
  for (const auto& [name, entry] : file.entries()) {
    BRAID_ASSIGN(at::Tensor tensor, file.read(name));
    out.emplace_back(name, std::move(tensor));
  }
  return out;
}

// What to type after `damaged` was refused.
std::string offer(const std::string& folder, const std::string& damaged) {
  const auto all = list_checkpoints(folder);
  const auto own = point_of(fs::path(damaged).filename().string());
  for (size_t i = all.ok() ? all->size() : 0; i > 0; --i) {
    const CheckpointInfo& info = (*all)[i - 1];
    if ((own && info.at >= *own) || !verify_checkpoint(info.path).ok()) continue;
    return cat("; the previous checkpoint is intact, continue from it with checkpoint.resume=",
               info.path);
  }
  return cat("; ", folder, " has no intact earlier checkpoint, begin again with ",
             "checkpoint.resume=none");
}

Result<std::string> checkpoint_at(const std::string& path) {
  if (path_exists(join_path(path, kManifestFile))) return path;
  const std::string what = cat("checkpoint.resume: ", path, " is not a checkpoint");
  if (!is_folder(path)) return not_found(what + " (there is no such folder)");
  BRAID_ASSIGN(const auto inside, list_checkpoints(path));
  if (inside.empty()) return not_found(what + " (it has no manifest.json)");
  return not_found(cat(what, "; the newest one in it is ", inside.back().path));
}

}  // namespace

Result<FileHandle> claim_folder(const std::string& folder, const std::string& key) {
  BRAID_TRY(make_folder(folder));
  const std::string path = join_path(folder, kLockFile);
  FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.is_open()) return io_error(cat(path, ": cannot open: ", std::strerror(errno)));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return invalid_input(
        cat(key, ": another process is writing to ", folder, "; wait for it or choose another"));
  return file;
}

Status check_free_space(const std::string& folder, int64_t needed_bytes) {
  BRAID_ASSIGN(const int64_t free, free_disk_bytes(folder));
  if (free >= needed_bytes) return ok_status();
  return io_error(cat(folder, ": a checkpoint needs ", format_bytes(needed_bytes), ", ",
                      format_bytes(free),
                      " are free; free some space, lower checkpoint.keep_last or set "
                      "checkpoint.dir to another disk"));
}

Result<std::string> save_checkpoint(const std::string& folder, const SavePoint& at,
                                    const std::map<std::string, double>& metrics,
                                    const CheckpointState& state) {
  BRAID_TRY(make_folder(folder));
  BRAID_TRY(remove_leftovers(folder));
  BRAID_TRY(check_free_space(folder, size_bytes(state)));
  const std::string temporary = join_path(folder, kTemporaryPrefix + folder_name(at));
  const std::string path = join_path(folder, folder_name(at));
  Status status = write_files(temporary, at.step, metrics, state);
  if (status.ok()) status = put_in_place(temporary, path);
  if (path_exists(temporary)) remove_folder(temporary);
  if (!status.ok()) return status.at("checkpoint");
  return path;
}

Result<std::vector<CheckpointInfo>> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointInfo> out;
  if (!path_exists(folder)) return out;
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(folder));
  for (const std::string& name : names)
    if (const auto at = point_of(name)) out.push_back({*at, join_path(folder, name)});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return out;
}

Result<int64_t> verify_checkpoint(const std::string& path) {
  BRAID_ASSIGN(const Manifest manifest, verified_manifest(path));
  return manifest.step;
}

Result<std::map<std::string, double>> checkpoint_metrics(const std::string& path) {
  BRAID_ASSIGN(Manifest manifest, read_manifest(path));
  return std::move(manifest.metrics);
}

Result<CheckpointState> load_checkpoint(const std::string& path, const std::string& groups) {
  if (!path_exists(join_path(path, kManifestFile)))
    return not_found(cat(path, " is not a checkpoint (it has no ", kManifestFile,
                         "); name a folder such as RUN/checkpoints/step-000012"));
  BRAID_ASSIGN(const Manifest manifest, verified_manifest(path));
  CheckpointState state;
  const std::string suffix = kTensorSuffix;
  for (const auto& [name, entry] : manifest.files) {
    const std::string file = join_path(path, name);
    if (name == kStateFile) {
      BRAID_ASSIGN(const std::string text, read_file(file));
      BRAID_ASSIGN(state.numbers, parse_json(text, file));
    } else if (name.ends_with(groups + suffix)) {
      BRAID_ASSIGN(state.tensors[name.substr(0, name.size() - suffix.size())], read_tensors(file));
    }
  }
  return state;
}

Result<Json> checkpoint_numbers(const std::string& path) {
  const std::string file = join_path(path, kStateFile);
  BRAID_ASSIGN(const std::string text, read_file(file));
  return parse_json(text, file);
}

Result<std::string> resume_path(const std::string& resume, const std::string& folder) {
  if (resume == "none") return std::string();
  std::string path;
  if (resume == "auto") {
    BRAID_ASSIGN(const auto all, list_checkpoints(folder));
    if (all.empty()) return std::string();
    path = all.back().path;
  } else {
    BRAID_ASSIGN(path, checkpoint_at(resume));
  }
  const Status failure = verify_checkpoint(path).status();
  if (failure.ok()) return path;
  return Status(Code::kDataLoss, cat("checkpoint ", path, " is damaged and was not used: ",
                                     failure.message(), offer(parent_folder(path), path)));
}

Status remove_checkpoints(const std::string& folder) {
  BRAID_ASSIGN(const auto all, list_checkpoints(folder));
  for (const CheckpointInfo& info : all) BRAID_TRY(remove_checkpoint(folder, info));
  return ok_status();
}

BestMetric parse_best_metric(const std::string& keep_best) {
  if (keep_best.rfind("min:", 0) == 0) return {keep_best.substr(4), true};
  if (keep_best.rfind("max:", 0) == 0) return {keep_best.substr(4), false};
  return {keep_best, false};
}

Status validate(const CheckpointConfig& config) {
  if (config.every_steps < 0 || config.hf_every_steps < 0)
    return invalid_input(
        "checkpoint.every_steps and hf_every_steps: 0 (only at the end) or a number of steps");
  if (!(config.every_minutes >= 0))
    return invalid_input("checkpoint.every_minutes: 0 (not by time) or a number of minutes");
  if (config.keep_last < 1) return invalid_input("checkpoint.keep_last: must be at least 1");
  if (config.resume.empty()) return invalid_input("checkpoint.resume: auto, none or a path");
  if (!config.keep_best.empty() && parse_best_metric(config.keep_best).name.empty())
    return invalid_input("checkpoint.keep_best: a metric's name, or min:NAME for the lowest");
  if (!config.keep_best.empty() && config.keep_best.find('/') == std::string::npos)
    return invalid_input(cat("checkpoint.keep_best: no metric is called '", config.keep_best,
                             "'; they have a group, such as reward/raw_mean or min:sft/loss "
                             "(docs/metrics.md)"));
  return ok_status();
}

Status apply_retention(const std::string& folder, const SavePoint& at,
                       const CheckpointConfig& config) {
  BRAID_ASSIGN(const auto all, list_checkpoints(folder));
  const BestMetric best = parse_best_metric(config.keep_best);
  std::vector<CheckpointInfo> readable;
  std::optional<double> best_value;
  SavePoint best_at{-1};
  for (const CheckpointInfo& info : all) {
    const auto metrics = checkpoint_metrics(info.path);
    if (!metrics.ok()) continue;
    readable.push_back(info);
    const auto found = metrics->find(best.name);
    if (info.at > at || info.at.open || best.name.empty() || found == metrics->end()) continue;
    const double value = best.lowest ? -found->second : found->second;
    if (best_value && value <= *best_value) continue;
    best_value = value;
    best_at = info.at;
  }
  int64_t kept = 0;
  for (size_t i = readable.size(); i > 0; --i) {
    const CheckpointInfo& info = readable[i - 1];
    if (info.at == at && at.open) continue;
    const bool later = info.at > at;
    if (later) log_info(cat("removing ", info.path, ", of a run that was left behind"));
    if (!later && !info.at.open && (kept++ < config.keep_last || info.at == best_at)) continue;
    BRAID_TRY(remove_checkpoint(folder, info));
  }
  return ok_status();
}

}  // namespace braid::inline checkpoint

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
#include "checkpoint/folder_names.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_share.h"
#include "checkpoint/shard_file.h"
#include "host/file.h"
#include "host/file_claim.h"

namespace braid::inline checkpoint {
namespace {

namespace fs = std::filesystem;

// Whether all that a run looks at before it reads tensors is there. Their content is left to who
// reads them: every rank may ask this, of checkpoints that are never read.
bool is_complete(const std::string& path) {
  const auto manifest = read_manifest(path);
  return manifest.ok() && check_sizes(path, *manifest).ok() && read_state(path, *manifest).ok();
}

// What to type after `damaged` was refused.
std::string offer(const std::string& folder, const std::string& damaged) {
  const auto all = list_checkpoints(folder);
  const auto own = point_of(fs::path(damaged).filename().string());
  for (size_t i = all.ok() ? all->size() : 0; i > 0; --i) {
    const CheckpointInfo& info = (*all)[i - 1];
    if ((own && info.at >= *own) || !is_complete(info.path)) continue;
    return cat("; the previous checkpoint is complete, continue from it with checkpoint.resume=",
               info.path);
  }
  return cat("; ", folder, " has no complete earlier checkpoint, begin again with ",
             "checkpoint.resume=none");
}

}  // namespace

Result<FileHandle> claim_folder(const std::string& folder, const std::string& key) {
  BRAID_TRY(make_folder(folder));
  const std::string path = join_path(folder, kClaimFile);
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

int64_t size_bytes(const CheckpointState& state) {
  int64_t total = kCheckpointOverheadBytes + static_cast<int64_t>(state.numbers.dump().size());
  for (const auto& [group, slices] : state.tensors)
    for (const SavedSlice& slice : slices) total += static_cast<int64_t>(slice.values.nbytes());
  return total;
}

Result<std::string> save_checkpoint(const std::string& folder, const SavePoint& at,
                                    const std::map<std::string, double>& metrics,
                                    const CheckpointState& state) {
  const SavePlace place{folder, cat("of process ", ::getpid())};
  BRAID_TRY(prepare_save(place, at, size_bytes(state)));
  (void)write_share(place, at, {}, state);  // its failure is that of the commit
  return commit_save(place, at, 1, metrics);
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
  BRAID_ASSIGN(const Manifest manifest, read_manifest(path));
  for (const auto& [name, entry] : manifest.files) {
    const std::string file = join_path(path, name);
    if (!entry.of_header) {
      BRAID_TRY(check_file(file, entry));
      continue;
    }
    BRAID_ASSIGN(ShardFile shard, ShardFile::open(file, entry));
    for (size_t i = 0; i < shard.size(); ++i) BRAID_TRY(shard.values(i).status());
  }
  return manifest.step;
}

Result<std::map<std::string, double>> checkpoint_metrics(const std::string& path) {
  BRAID_ASSIGN(Manifest manifest, read_manifest(path));
  return std::move(manifest.metrics);
}

Result<Json> checkpoint_numbers(const std::string& path) {
  BRAID_ASSIGN(const Manifest manifest, read_manifest(path));
  return read_state(path, manifest);
}

Status refused_as_damaged(const std::string& path, const Status& failure) {
  return {Code::kDataLoss, cat("checkpoint ", path, " is damaged and was not used: ",
                               failure.message(), offer(parent_folder(path), path))};
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

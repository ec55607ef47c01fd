#include "checkpoint/resumed_checkpoint.h"

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "host/file.h"

namespace braid::inline checkpoint {
namespace {

Result<std::string> checkpoint_at(const std::string& path) {
  if (path_exists(join_path(path, kManifestFile))) return path;
  const std::string what = cat("checkpoint.resume: ", path, " is not a checkpoint");
  if (!is_folder(path)) return not_found(what + " (there is no such folder)");
  BRAID_ASSIGN(const auto inside, list_checkpoints(path));
  if (inside.empty()) return not_found(what + " (it has no manifest.json)");
  return not_found(cat(what, "; the newest one in it is ", inside.back().path));
}

}  // namespace

Result<ResumedCheckpoint> ResumedCheckpoint::read(const std::string& path) {
  ResumedCheckpoint out;
  out.path_ = path;
  BRAID_ASSIGN(out.manifest_, read_manifest(path));
  BRAID_ASSIGN(out.numbers_, read_state(path, out.manifest_));
  return out;
}

Result<ResumedCheckpoint> ResumedCheckpoint::find(const std::string& resume,
                                                  const std::string& folder, bool all_files) {
  if (resume == "none") return ResumedCheckpoint();
  std::string path;
  if (resume == "auto") {
    BRAID_ASSIGN(const auto all, list_checkpoints(folder));
    if (all.empty()) return ResumedCheckpoint();
    path = all.back().path;
  } else {
    BRAID_ASSIGN(path, checkpoint_at(resume));
  }
  auto out = read(path);
  Status failure = out.status();
  if (failure.ok() && all_files) failure = check_sizes(path, out->manifest());
  return failure.ok() ? std::move(out) : refused_as_damaged(path, failure);
}

}  // namespace braid::inline checkpoint

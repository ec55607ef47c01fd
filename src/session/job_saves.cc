#include "session/job_saves.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/run_folder.h"
#include "comm/rank_texts.h"
#include "device/tensor_memory.h"
#include "host/file.h"
#include "interpret/interpreter.h"
#include "session/rank_report.h"
#include "weights/export_role.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

// In the folder of the run: the weights of an export on their way to the first rank.
constexpr const char* kExportedSlices = ".export-slices";

// The slices of an export go with it, whatever has come of it.
struct SlicesFolder {
  std::string path;
  ~SlicesFolder() { remove_folder(path); }
};

int64_t bytes_of(const CheckpointState& share) {
  int64_t out = 0;
  for (const auto& [group, slices] : share.tensors)
    for (const SavedSlice& slice : slices) out += static_cast<int64_t>(slice.values.nbytes());
  return out;
}

}  // namespace

JobSaves::JobSaves(const StepContext& step, std::string job)
    : step_(step),
      job_(std::move(job)),
      writer_(step.config.checkpoint, {checkpoint_folder(step.config), job_},
              {step.rank(), step.ranks()}) {}

Status JobSaves::begin(const SavePoint& at, const std::map<std::string, double>& metrics,
                       const Json& more, const Source& source, bool beside) {
  BRAID_TRY(shares_written());
  CheckpointState share, shared;
  BRAID_TRY(source.shared(&shared));  // before a rank finds a fault
  const auto prepare = [&]() -> Status {
    BRAID_TRY(writer_.committed());
    BRAID_ASSIGN(share, source.share());
    if (step_.rank() != 0) return ok_status();
    share.numbers.update(shared.numbers);
    share.tensors.merge(shared.tensors);
    share.numbers.update(more);
    BRAID_ASSIGN(int64_t bytes, source.bytes());
    bytes = std::max(bytes, bytes_of(share));  // an open step has its samples too
    return writer_.prepare(at, bytes + kCheckpointOverheadBytes);
  };
  reset_peak_tensor_bytes();
  const Status agreed = step_.talk.agree(guarded(prepare), "what a checkpoint is to hold");
  note_peak();
  if (!agreed.ok() && step_.rank() == 0) writer_.drop(at);
  BRAID_TRY(agreed);
  writer_.begin(at, metrics, std::move(share));
  return beside ? ok_status() : finish();
}

void JobSaves::note_peak() { peak_ = std::max(peak_, peak_tensor_bytes()); }

// On all ranks, of the checkpoint that was begun: all have written what they hold, or all know who
// has not.
Status JobSaves::shares_written() {
  if (!writer_.open()) return ok_status();
  const Status told = step_.talk.agree(writer_.share_written(), "the files of a checkpoint");
  if (!told.ok()) (void)writer_.end();
  return told;
}

Status JobSaves::finish() {
  BRAID_TRY(shares_written());
  step_.talk.part();
  return writer_.committed();
}

bool JobSaves::exports_together() const {
  const std::vector<RoleSpec>& roles = step_.program.graph.roles;
  return std::any_of(roles.begin(), roles.end(), [&](const RoleSpec& spec) {
    return spec.trained && !step_.models.whole_on_first(spec.role.value);
  });
}

Status JobSaves::export_alone(const std::string& folder) const {
  const RankModels::Everything here(step_.models);
  const Roles& roles = step_.models.roles();
  for (const RoleSpec& spec : step_.program.graph.roles)
    if (spec.trained)
      BRAID_TRY(export_role(spec.role.value, roles.at(spec.role.value), step_.config, folder));
  return ok_status();
}

// Of trained roles, their weights.
CheckpointState JobSaves::exported_share() const {
  CheckpointState share;
  for (const auto& [name, role] : step_.models.roles()) {
    if (!role.optimizer) continue;
    RoleSlices own = step_.models.own_slices(name);
    if (step_.models.leads(name) || !own.weights.empty())
      share.tensors[name + kWeightsGroup] = std::move(own.weights);
  }
  return share;
}

Status JobSaves::export_together(const std::string& folder) {
  const std::string slices = join_path(run_folder(step_.config), kExportedSlices);
  const SavePoint at{step_.position.step};
  const bool first = step_.rank() == 0;
  std::optional<SlicesFolder> removed;
  if (first) removed.emplace(slices);
  const auto prepare = [&]() -> Status {
    if (!first) return ok_status();
    std::filesystem::remove_all(slices);
    BRAID_ASSIGN(const int64_t bytes, exported_bytes());
    return prepare_save({slices, job_}, at, bytes + kCheckpointOverheadBytes);
  };
  reset_peak_tensor_bytes();
  BRAID_TRY(step_.talk.agree(guarded(prepare), "where an export is to be"));
  const auto write = [&]() -> Status {
    const RankModels::Everything here(step_.models);
    return write_share({slices, job_}, at, {step_.rank(), step_.ranks()}, exported_share());
  };
  BRAID_TRY(step_.talk.agree(guarded(write), "the weights of an export"));
  Status written;
  if (first) written = guarded([&] { return export_slices(slices, at, folder); });
  removed.reset();
  note_peak();
  BRAID_TRY(step_.talk.agree(written, "the end of an export"));
  const Status told = tell_peaks();
  step_.talk.part();
  return told;
}

Status JobSaves::tell_peaks() {
  peaks_.clear();
  if (step_.rank() < kMostRecordedRanks) peaks_[step_.rank()] = static_cast<double>(peak_);
  const auto hear = [&](const std::string& text) -> Status {
    BRAID_ASSIGN(const Json peaks, parse_json(text, "peaks of ranks"));
    peaks_.merge(peaks.get<std::map<int64_t, double>>());
    return ok_status();
  };
  return merge_to_first(step_.exchange.everyone(), {[&] { return Json(peaks_).dump(); }, hear},
                        "peaks of saving");
}

Status JobSaves::export_slices(const std::string& slices, const SavePoint& at,
                               const std::string& folder) const {
  BRAID_ASSIGN(const std::string path, commit_save({slices, job_}, at, step_.ranks(), {}));
  BRAID_ASSIGN(CheckpointReader saved, CheckpointReader::open(path));
  for (const RoleSpec& spec : step_.program.graph.roles)
    if (spec.trained) BRAID_TRY(export_saved_role(spec, saved, step_.config, folder));
  return ok_status();
}

Result<int64_t> JobSaves::exported_bytes() const {
  int64_t out = 0;
  for (const RoleSpec& spec : step_.program.graph.roles) {
    if (!spec.trained) continue;
    BRAID_ASSIGN(const int64_t bytes, whole_weight_bytes(spec, step_.config));
    out += bytes;
  }
  return out;
}

}  // namespace braid::inline session

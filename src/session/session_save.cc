// Checkpoints and exports that the ranks of a session write together.
#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "device/tensor_memory.h"
#include "host/file.h"
#include "session/session.h"
#include "weights/export_role.h"
#include "weights/roles.h"

namespace braid::inline session {
namespace {

// In the folder of the run: the weights of an export on their way to the first rank.
constexpr const char* kExportedSlices = ".export-slices";

int64_t bytes_of(const CheckpointState& share) {
  int64_t out = 0;
  for (const auto& [group, slices] : share.tensors)
    for (const SavedSlice& slice : slices) out += static_cast<int64_t>(slice.values.nbytes());
  return out;
}

}  // namespace

Status Session::save(const std::map<std::string, double>& metrics, const Json& more) {
  BRAID_TRY(announce(Command::kSave));
  const Status saved = begin_save(metrics, more);
  if (saved.ok()) talk_.part();
  return saved;
}

// The one before is committed, and this one has room and shares, before any rank writes.
Status Session::begin_save(const std::map<std::string, double>& metrics, const Json& more) {
  BRAID_TRY(shares_written());
  const SavePoint at{position_.step, step_open()};
  CheckpointState share, waiting;
  if (ranks() > 1) BRAID_TRY(save_ahead(&waiting));  // together, before a rank finds a fault
  const auto prepare = [&]() -> Status {
    BRAID_TRY(writer_.committed());
    BRAID_ASSIGN(share, save_state());
    if (rank() != 0) return ok_status();
    share.numbers.update(waiting.numbers);
    share.tensors.merge(waiting.tensors);
    share.numbers.update(more);
    BRAID_ASSIGN(int64_t bytes, saved_bytes());
    bytes = std::max(bytes, bytes_of(share));  // an open step has its samples too
    return writer_.prepare(at, bytes + kCheckpointOverheadBytes);
  };
  reset_peak_tensor_bytes();
  const Status agreed = talk_.agree(guarded(prepare), "what a checkpoint is to hold").status();
  note_saving_peak();
  if (!agreed.ok() && rank() == 0) writer_.drop(at);
  BRAID_TRY(agreed);
  writer_.begin(at, metrics, std::move(share));
  return saves_beside() ? ok_status() : finish_save();
}

void Session::note_saving_peak() { saving_peak_ = std::max(saving_peak_, peak_tensor_bytes()); }

// On all ranks, of the checkpoint that was begun: all have written what they hold, or all know who
// has not.
Status Session::shares_written() {
  if (!writer_.open()) return ok_status();
  const Status told = talk_.agree(writer_.share_written(), "the files of a checkpoint").status();
  if (!told.ok()) (void)writer_.end();
  return told;
}

Status Session::finish_save() {
  BRAID_TRY(shares_written());
  talk_.part();
  return writer_.committed();
}

Status Session::finish_saves() {
  if (!writer_.open()) return ok_status();
  BRAID_TRY(announce(Command::kFinishSave));
  return finish_save();
}

Status Session::export_models(const std::string& folder) {
  bool together = false;
  for (const RoleSpec& spec : program_.graph.roles)
    together |= spec.trained && !models_->whole_on_first(spec.role.value);
  if (together) {
    BRAID_TRY(announce(Command::kExport));
    return export_together(folder);
  }
  const RankModels::Everything here(*models_);
  for (const RoleSpec& spec : program_.graph.roles)
    if (spec.trained)
      BRAID_TRY(export_role(spec.role.value, roles().at(spec.role.value), config_, folder));
  return ok_status();
}

// Of trained roles, their weights.
CheckpointState Session::exported_share() const {
  CheckpointState share;
  for (const auto& [name, role] : roles()) {
    if (!role.optimizer) continue;
    RoleSlices own = models_->own_slices(name);
    if (models_->leads(name) || !own.weights.empty())
      share.tensors[name + kWeightsGroup] = std::move(own.weights);
  }
  return share;
}

// The others hand over through files, of which the first rank reads one layer at a time.
Status Session::export_together(const std::string& folder) {
  const std::string slices = join_path(run_folder(config_), kExportedSlices);
  const SavePoint at{position_.step};
  const auto prepare = [&]() -> Status {
    if (rank() != 0) return ok_status();
    std::filesystem::remove_all(slices);
    BRAID_ASSIGN(const int64_t bytes, exported_bytes());
    return prepare_save(slices, at, bytes + kCheckpointOverheadBytes);
  };
  reset_peak_tensor_bytes();
  BRAID_TRY(talk_.agree(guarded(prepare), "where an export is to be").status());
  const auto write = [&]() -> Status {
    const RankModels::Everything here(*models_);
    return write_share(slices, at, {rank(), ranks()}, exported_share());
  };
  BRAID_TRY(talk_.agree(guarded(write), "the weights of an export").status());
  Status written;
  if (rank() == 0) {
    written = guarded([&] { return export_slices(slices, at, folder); });
    std::filesystem::remove_all(slices);
  }
  note_saving_peak();
  BRAID_ASSIGN(const auto peaks,
               talk_.agree(written, "the end of an export", std::to_string(saving_peak_)));
  talk_.part();
  saving_peaks_.clear();
  for (const std::string& peak : peaks) saving_peaks_.push_back(std::stod(peak));
  return ok_status();
}

Status Session::export_slices(const std::string& slices, const SavePoint& at,
                              const std::string& folder) const {
  BRAID_ASSIGN(const std::string path, commit_save(slices, at, ranks(), {}));
  BRAID_ASSIGN(CheckpointReader saved, CheckpointReader::open(path));
  for (const RoleSpec& spec : program_.graph.roles)
    if (spec.trained) BRAID_TRY(export_saved_role(spec, saved, config_, folder));
  return ok_status();
}

Result<int64_t> Session::exported_bytes() const {
  int64_t out = 0;
  for (const RoleSpec& spec : program_.graph.roles) {
    if (!spec.trained) continue;
    BRAID_ASSIGN(const int64_t bytes, whole_weight_bytes(spec, config_));
    out += bytes;
  }
  return out;
}

}  // namespace braid::inline session

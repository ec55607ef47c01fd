#include "checkpoint/checkpoint_writer.h"

#include <exception>
#include <functional>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/writing_folder.h"
#include "host/awaited_work.h"

namespace braid::inline checkpoint {
namespace {

// Nobody above the thread would catch it.
Status without_exceptions(const std::function<Status()>& act) {
  try {
    return act();
  } catch (const std::exception& error) {
    return io_error(cat("a checkpoint cannot be written: ", error.what()));
  }
}

}  // namespace

void CheckpointWriter::begin(const SavePoint& at, const std::map<std::string, double>& metrics,
                             CheckpointState share) {
  BRAID_CHECK(!open(), "a checkpoint is being written");
  stopped_ = share_written_ = awaited_ = false;
  share_ = commit_ = ok_status();
  thread_ = std::thread([this, at, metrics, share = std::move(share)]() mutable {
    work_when_awaited(awaited_);
    share_ = without_exceptions([&] { return write_share(place_, at, self_, share); });
    share = {};  // its memory goes before others are waited for
    share_written_ = true;
    share_written_.notify_all();
    if (self_.rank == 0) commit_ = without_exceptions([&] { return commit(at, metrics); });
  });
}

Status CheckpointWriter::commit(const SavePoint& at, const std::map<std::string, double>& metrics) {
  BRAID_TRY(
      commit_save(place_, at, self_.ranks, metrics, [&] { return stopped_.load(); }).status());
  return apply_retention(place_.folder, at, config_);
}

void CheckpointWriter::drop(const SavePoint& at) const { remove_folder(writing_path(place_, at)); }

Status CheckpointWriter::share_written() {
  awaited_ = true;
  share_written_.wait(false);
  awaited_ = false;
  return share_;
}

Status CheckpointWriter::committed() {
  if (!open()) return ok_status();
  awaited_ = true;
  thread_.join();
  return share_.ok() ? commit_ : share_;
}

Status CheckpointWriter::end() {
  stopped_ = true;
  return committed();
}

}  // namespace braid::inline checkpoint

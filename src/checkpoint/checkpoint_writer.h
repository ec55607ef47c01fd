// Writes a rank's share of one checkpoint after another, each on a thread of its own beside what
// the rank does meanwhile. Only the thread that made it calls it.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "checkpoint/save_share.h"

namespace braid::inline checkpoint {

class CheckpointWriter {
 public:
  CheckpointWriter(const CheckpointConfig& config, SavePlace place, const SaveRank& self)
      : config_(config), place_(std::move(place)), self_(self) {}
  // Waits for what it writes; the first rank waits for no other.
  ~CheckpointWriter() { (void)end(); }
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Whether a checkpoint was begun that nobody has waited for.
  bool open() const { return thread_.joinable(); }

  // Before begin(), on the first rank: room for so many bytes.
  Status prepare(const SavePoint& at, int64_t bytes) { return prepare_save(place_, at, bytes); }
  // Gives that up.
  void drop(const SavePoint& at) const;
  // Begins to write this rank's share; the first rank commits when all are written, and removes
  // what the retention does not keep. REQUIRES: not open(); the tensors stay as they are until
  // then.
  void begin(const SavePoint& at, const std::map<std::string, double>& metrics,
             CheckpointState share);

  // Waits until this rank's share is written, or is not.
  Status share_written();
  // Waits for the rest too: on the first rank until all shares are written and it has committed.
  // REQUIRES: those of the others are written.
  Status committed();
  // Waits likewise, but for no other rank: what is not there now does not come.
  Status end();

 private:
  Status commit(const SavePoint& at, const std::map<std::string, double>& metrics);

  const CheckpointConfig config_;
  const SavePlace place_;
  const SaveRank self_;
  std::atomic<bool> awaited_ = false;  // somebody waits for the thread
  std::thread thread_;
  std::atomic<bool> stopped_ = false;       // no waiting for other ranks any more
  std::atomic<bool> share_written_ = true;  // or failed
  Status share_, commit_;  // valid once the above is set; once the thread has ended
};

}  // namespace braid::inline checkpoint

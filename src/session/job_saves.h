// Checkpoints and exports that the ranks of a session write together: each what it holds, where all
// agree before any of them writes, and behind that. Not thread-safe; checkpoints may be written
// beside the steps that follow.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "session/step_context.h"

namespace braid::inline session {

class JobSaves {
 public:
  // Where a checkpoint comes from.
  struct Source {
    // On all ranks together: what is of none of them alone, for the first one to write.
    std::function<Status(CheckpointState*)> shared;
    std::function<Result<CheckpointState>()> share;  // of this rank
    std::function<Result<int64_t>()> bytes;          // of the tensors of all shares
  };

  // `job`: the same on all ranks, and no other job's.
  JobSaves(const StepContext& step, std::string job);

  // Begins a checkpoint on every rank: the one before is committed, and this one has room and
  // shares, before any rank writes. With `beside` it is written while steps go on; else it is
  // committed on return. `more`: numbers of the first rank.
  Status begin(const SavePoint& at, const std::map<std::string, double>& metrics, const Json& more,
               const Source& source, bool beside);
  // Whether one that was begun may not be committed.
  bool open() const { return writer_.open(); }
  // On every rank: waits until it is.
  Status finish();

  // Whether the first rank has a role in part, so that an export takes all ranks.
  bool exports_together() const;
  // On the first rank alone: each trained role as a Hugging Face folder.
  Status export_alone(const std::string& folder) const;
  // On every rank. The others hand over through files in the folder of the run, of which the first
  // rank reads one layer at a time.
  Status export_together(const std::string& folder);
  // On the first rank: bytes that each of the first ranks (rank_report.h) has held at most
  // meanwhile, by rank; empty before an export by all.
  const std::map<int64_t, double>& peaks() const { return peaks_; }

 private:
  void note_peak();
  Status tell_peaks();
  Status shares_written();
  CheckpointState exported_share() const;
  Result<int64_t> exported_bytes() const;
  Status export_slices(const std::string& slices, const SavePoint& at,
                       const std::string& folder) const;

  const StepContext& step_;
  const std::string job_;
  int64_t peak_ = 0;                 // bytes of this rank, of all checkpoints and exports
  std::map<int64_t, double> peaks_;  // of this rank and those that it has heard
  CheckpointWriter writer_;
};

}  // namespace braid::inline session

// Copies caches of samples ahead of a hand-over (program/pre_copy.h), beside the rounds of the
// generation: nobody waits for a copy before it is handed over. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "program/pre_copy.h"
#include "session/moved_cache.h"
#include "session/step_context.h"

namespace braid::inline session {

// The step's samples, by row, as ranks have told how far each is (told_of()): a number for each.
std::vector<SampleProgress> progress_heard(const StepContext& step, const int64_t* numbers);

class PreCopyCalls {
 public:
  // REQUIRES: both outlive this.
  PreCopyCalls(const StepContext& step, Generation& generation)
      : step_(step), generation_(generation) {}

  void begin_step();
  // Leaves what is on its way: after a failure.
  void abandon();

  // All ranks of a generation have read a count of what is left before its first hand-over, which
  // is at `below`. Where that is low enough for copies they begin to tell each other how far they
  // are, and copy when they read the next count.
  Status look(CallId call, int64_t left, int64_t below, const ReplicaLimits& limits);

  // Of a row of this rank's replica: the replica that was chosen to go on with it, -1: none was;
  // and the tokens of its cache that were copied there.
  int32_t chosen(size_t row) const { return chosen_.empty() ? -1 : chosen_[row]; }
  int64_t copied(size_t row) const;
  // Waits until all copies have come that are on their way to this rank, and from it.
  Status arrive();
  // What came of a row. REQUIRES: arrive(), and it was copied to this rank.
  const at::Tensor& came(size_t row) const { return came_.at(row); }
  // The copies that came are of no more use.
  void drop() { came_.clear(); }

 private:
  bool is_on() const { return step_.program.scoring.pre_copy > 0; }
  Status share(CallId call);
  Status copy(CallId call, const std::vector<CacheCopy>& copies);
  void send(const CacheCopy& copy, DeviceId to);
  void receive(const CacheCopy& copy, DeviceId from);
  TransferCounts listed(const CallPlacement& where, int own,
                        const std::vector<CacheCopy>& copies) const;

  const StepContext& step_;
  Generation& generation_;
  bool shared_ = false;                // in this step
  Transfers sharing_;                  // how far samples are, while that is on its way
  std::vector<int32_t> chosen_;        // by row; empty: nobody was chosen
  std::map<size_t, int64_t> copied_;   // by row that this rank sent: tokens
  Transfers on_their_way_;             // copies
  std::map<size_t, at::Tensor> came_;  // by row that comes to this rank
};

}  // namespace braid::inline session

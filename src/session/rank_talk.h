// How the ranks of a job stay together between instructions: what the first one begins the others
// follow, and what one of them finds to fail all of them come to know. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "samples/field_exchange.h"

namespace braid::inline session {

class RankTalk {
 public:
  // What the first rank of a job begins: all ranks come along.
  enum class Command : int32_t { kStep, kEvaluate, kSave, kFinishSave, kExport, kDismiss };
  // With what is decided anew between steps: samples at which a generation is handed over, and
  // milliseconds without progress after which a rank is stuck.
  struct Word {
    Command command = Command::kStep;
    int64_t hand_over_below = 0;
    int64_t stall_ms = 0;
  };

  // `world` is null for a job of one rank. REQUIRES: both outlive this.
  RankTalk(World* world, FieldExchange& exchange) : world_(world), exchange_(exchange) {}

  int64_t rank() const { return exchange_.rank(); }
  int64_t ranks() const { return exchange_.ranks(); }

  // On the first rank: tells the others what comes next, of a job that has completed `steps` steps
  // and may be `within` the next one.
  Status announce(const Word& word, int64_t steps, bool within);
  // On the others: waits for that.
  Result<Word> next_word(int64_t steps, bool within);
  // On the first rank: what was announced is done, or has failed on all.
  void part() { together_ = false; }
  // On the first rank: whether the others are still within what it announced.
  bool together() const { return together_; }
  // Where those who watch this rank see it.
  void note(const std::string& place, const std::string& instruction) const;

  // A new step: nothing has failed.
  void begin_step();
  // What this rank alone found to fail is kept until the point at which all ranks hear of it.
  Status until_told(Status own);
  // At a point that all ranks come to: the first failure that one of them kept, the same on all.
  // Each says whether it kept one; texts follow where one did.
  Status all_well(const std::string& what);
  // Likewise where each says it with what else it says, first: failed_word(). `said`: by all,
  // [rank].
  int32_t failed_word() const { return untold_.ok() ? 0 : 1; }
  Status hear(const std::vector<std::vector<int32_t>>& said, const std::string& what);
  // Between steps: the first failure of what each found; then the others are no longer within what
  // was announced.
  Status agree(const Status& own, const std::string& what);
  // A failure that the ranks of a call have decided alike; `own`: why, where it came from this
  // rank. Where all ranks are of the call (`all_meet`) they hear of it here; else it is the
  // failure of those that are.
  Status fail_alike(bool all_meet, const Status& decided, const Status& own);
  // The step's failure is one that all ranks know of, and have too.
  void note_alike(bool alike) { failed_alike_ = alike; }
  bool failed_alike() const { return failed_alike_; }
  // The step has ended with this.
  void end_step(const Status& status) { together_ = !status.ok() && !failed_alike_; }

 private:
  void note_begin(const Word& word, int64_t steps, bool within) const;
  Status first_failure(const std::string& what);

  World* const world_;
  FieldExchange& exchange_;
  Status untold_;              // what this rank alone has found to fail
  bool failed_alike_ = false;  // the open step, on all ranks
  bool together_ = false;      // on the first rank
};

}  // namespace braid::inline session

// This process as one rank of a job: the store where the ranks meet, the watchdog, the groups, and
// how a rank leaves or fails. One thread; the watchdog is a thread of its own. A job of one rank
// needs no store and no watchdog and has all functions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "comm/membership.h"
#include "comm/position.h"
#include "comm/watchdog.h"

namespace braid::inline comm {

class Wires;

// What a rank says of itself, in words that follow its name: "has train.seed" -> "'2'" reads "rank
// 1 has train.seed '2', rank 0 '1'". A claim that a rank lacks is "not at all".
using Claims = std::map<std::string, std::string>;

// Claims about a part of something, which any number of ranks may have.
struct PartClaims {
  std::string part;    // its name in the job
  bool first = false;  // of those that have it this rank is the one that the others compare with
  Claims claims;       // a name that another rank has not is passed over
  std::vector<std::string> overlapping;  // other parts: what both say something of must be equal
  std::vector<int64_t> waits_for = {};   // ranks that say what this one compares with
};

struct WorldOptions {
  double join_s = 120;      // for all ranks to come, and for a group to connect
  double notice_s = 5;      // of waiting for ranks to come: then the log says for whom
  double deadline_s = 300;  // of every wait of a communicator
  double leave_s = 300;     // for all ranks to end as planned, where this rank serves the store
  int64_t mesh_ranks = -1;  // of a group in which all are connected; -1: kMostInMesh
  WatchdogOptions watchdog = {};
};

class World {
 public:
  // Meets the other ranks. An unreachable master, a port in use and a rank that does not come
  // within join_s are errors that name them.
  static Result<std::unique_ptr<World>> join(const Membership& membership,
                                             const WorldOptions& options);
  // In the place of join(), of a rank that cannot even begin: the others, which may wait for it in
  // theirs or come soon, end with the same error. Returns `cause`. Nothing where Braid's own
  // launcher started the ranks, which sees how each of them ends.
  static Status fail_before_join(const Membership& membership, const Status& cause);
  ~World();

  const Membership& membership() const { return membership_; }
  int64_t global_rank() const { return membership_.global_rank; }
  int64_t world_size() const { return membership_.world_size; }
  // What tells this job from all others, also from this one started again: the process of rank 0.
  Result<std::string> job();
  PositionBoard& position() { return board_; }
  // From now on (WatchdogOptions::stall_s). Nothing in a job of one rank.
  void set_stall_s(double seconds) {
    if (watchdog_ != nullptr) watchdog_->set_stall_s(seconds);
  }

  // All ranks must call it with equal claims, at a `point` of its own; else every rank gets one
  // kInvalidInput that names ranks, claims and values, with `remedy` behind them, and refused() is
  // true from then on. The ranks compare a digest with rank 0's; claims travel where it differs.
  Status agree(const std::string& point, const Claims& claims, const std::string& remedy);
  // As agree(), of parts, and a point may come again: every rank calls it with those that it has;
  // one of those that have a part is first. A rank asks the store for its own parts alone: for a
  // digest, and for claims where it differs or parts overlap. Of a part that differs one claim is
  // named.
  Status agree_on_parts(const std::string& point, const std::vector<PartClaims>& parts,
                        const std::string& remedy);
  bool refused() const { return refused_; }

  // Rank 0's text, on all ranks: all must call it, at a `point` of its own.
  Result<std::string> told_by_first(const std::string& point, const std::string& text);

  // Entries that the job decides once: of a name in a list the value that a rank gave first holds
  // for all. settled() is it, where there is one; settle() gives it, and is first where nobody was;
  // settled_behind() are those of the list, in the order they came, behind the first `seen`. Any
  // rank, whenever it likes.
  Result<std::optional<std::string>> settled(const std::string& list, const std::string& name);
  Result<std::string> settle(const std::string& list, const std::string& name,
                             const std::string& value);
  Result<std::vector<std::pair<std::string, std::string>>> settled_behind(const std::string& list,
                                                                          int64_t seen);

  // The communicator of these ranks, in this order, under this name, connected on the first call by
  // all members; valid as long as the world. Two groups of equal ranks with different names are
  // independent. REQUIRES: all members state the same order.
  Result<Communicator*> group(const std::string& name, std::vector<int64_t> members);
  // The group of all ranks.
  Result<Communicator*> everyone();

  // Tells the job that this rank cannot go on: the others end within seconds. Returns the message
  // to end with; a later call returns that of the first. Does not return where another rank had
  // failed before: then this process ends here.
  Status fail(const Status& cause);

  // The planned end. Rank 0 waits for the others where it serves the store.
  Status leave();

  // To the store so far: none of the watchdog and of Gloo, and none for addresses of ranks that
  // this one is wired to, one for each.
  int64_t store_requests() const { return store_ == nullptr ? 0 : store_->requests(); }
  // Ranks that this one is connected to for its groups of many (comm/wires.h).
  int64_t wired_to() const;
  // Through all groups, by kind.
  Traffic traffic(Transfer transfer) const;

 private:
  World(const Membership& membership, const WorldOptions& options);
  // Says that this rank, one of so many, has come to a point. A few requests, however many they
  // are.
  Status arrive(const std::string& point, int64_t ranks);
  Status meet();
  Result<std::vector<int64_t>> missing_at(const std::string& point,
                                          const std::vector<int64_t>& ranks);
  // Waits until all these ranks have come to the point; says in the log for whom when it takes
  // long. kDeadline, after `limit_s`, names those that have not. `said`: what the point says then.
  Status await_ranks(const std::string& point, const std::vector<int64_t>& ranks,
                     const std::string& what, double limit_s, std::string* said = nullptr);
  Status await_leaving();
  Result<std::unique_ptr<GroupBackend>> connect(const std::string& name,
                                                const std::vector<int64_t>& members);
  Status publish(const std::string& place, const Claims& claims);
  Result<Json> differences_from(const std::string& place, const Claims& claims, bool both);
  Result<std::string> verdict(const std::string& prefix, const std::string& remedy);
  Status conclude(const std::string& point, const Json& differences, const std::string& remedy);

  Membership membership_;
  WorldOptions options_;
  PositionBoard board_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Watchdog> watchdog_;
  Status told_;  // what fail() returned
  bool refused_ = false;
  int64_t agreed_on_parts_ = 0;
  std::unique_ptr<Wires> wires_;  // null where all groups are of few ranks
  std::map<std::string, std::unique_ptr<Communicator>> groups_;
};

// SHA-256 of the program that runs, for World::agree().
Result<std::string> binary_hash();

}  // namespace braid::inline comm

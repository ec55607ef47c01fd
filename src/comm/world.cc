#include "comm/world.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "comm/failure.h"
#include "comm/group_backend.h"
#include "host/file.h"
#include "host/process.h"
#include "host/sha256.h"

namespace braid {
namespace {

// A peer's end is seen as a broken connection before its cause is in the store: wait this long.
constexpr double kPrimaryCause_s = 3;
// The rank that serves the store lets the others read its failure before it ends.
constexpr double kEndings_s = 5;

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::vector<std::string> names;
  for (const int64_t rank : ranks) names.push_back(std::to_string(rank));
  return join(names, ", ");
}

std::vector<int64_t> ranks_below(int64_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// What rank 0 says about the values of all ranks: "" or what differs.
std::string verdict_on(const std::vector<Json>& values) {
  std::vector<std::string> differences;
  for (const auto& [name, value] : values[0].items()) {
    std::vector<int64_t> others;
    for (size_t rank = 1; rank < values.size(); ++rank)
      if (values[rank].value(name, "") != value) others.push_back(static_cast<int64_t>(rank));
    if (!others.empty())
      differences.push_back(
          cat("the ", name, " of rank ", rank_list(others), " differs from that of rank 0"));
  }
  return differences.empty() ? ""
                             : cat(join(differences, "; "),
                                   ": start all ranks with the same program, files and arguments");
}

}  // namespace

Result<std::string> binary_hash() {
  BRAID_ASSIGN(const MappedFile file, MappedFile::open("/proc/self/exe"));
  return sha256_hex(file.text());
}

World::World(const Membership& membership, const WorldOptions& options)
    : membership_(membership), options_(options) {}

World::~World() = default;

Result<std::unique_ptr<World>> World::join(const Membership& membership,
                                           const WorldOptions& options) {
  std::unique_ptr<World> world(new World(membership, options));
  if (membership.world_size == 1) return world;
  BRAID_ASSIGN(world->store_, Store::open(membership, options.join_s));
  BRAID_ASSIGN(world->watchdog_,
               Watchdog::start(*world->store_, membership, world->board_, options.watchdog));
  BRAID_TRY(world->store_->set(cat("came/", membership.global_rank), "1"));
  BRAID_TRY(world->await_ranks("came/", ranks_below(membership.world_size), "joining"));
  return world;
}

Status World::await_ranks(const std::string& key_prefix, const std::vector<int64_t>& ranks,
                          const std::string& what) {
  const Deadline deadline = deadline_in(options_.join_s);
  for (const int64_t rank : ranks) {
    const double left_s =
        std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (store_->wait(cat(key_prefix, rank), std::max(left_s, 0.001)).ok()) continue;
    std::vector<int64_t> missing;
    std::vector<std::string> keys;
    for (const int64_t each : ranks) keys.push_back(cat(key_prefix, each));
    BRAID_ASSIGN(const auto seen, store_->look(keys));
    for (size_t i = 0; i < ranks.size(); ++i)
      if (!seen[i]) missing.push_back(ranks[i]);
    if (missing.empty()) continue;
    return {Code::kDeadline, cat(what, ": rank ", rank_list(missing), " of ", ranks.size(),
                                 " did not come within ", options_.join_s, " s")};
  }
  return {};
}

Status World::agree(const std::vector<std::pair<std::string, std::string>>& values) {
  if (world_size() == 1) return {};
  Json own = Json::object();
  for (const auto& [name, value] : values) own[name] = value;
  BRAID_TRY(store_->set(cat("agree/", global_rank()), own.dump()));
  if (global_rank() == 0) {
    BRAID_TRY(await_ranks("agree/", ranks_below(world_size()), "agreement at the start"));
    std::vector<Json> all;
    for (int64_t rank = 0; rank < world_size(); ++rank) {
      BRAID_ASSIGN(const std::string text, store_->wait(cat("agree/", rank), options_.join_s));
      BRAID_ASSIGN(Json json, parse_json(text, cat("values of rank ", rank)));
      all.push_back(std::move(json));
    }
    BRAID_TRY(store_->set("agreed", cat("=", verdict_on(all))));
  }
  BRAID_ASSIGN(const std::string verdict,
               store_->wait("agreed", options_.join_s).at("agreement at the start"));
  if (verdict == "=") return ok_status();
  // The store goes with rank 0: it stays until the others have read why.
  BRAID_TRY(store_->set(cat("refused/", global_rank()), "1"));
  if (global_rank() == 0)
    BRAID_TRY(await_ranks("refused/", ranks_below(world_size()), "agreement at the start"));
  return invalid_input(verdict.substr(1));
}

Result<Communicator*> World::group(const std::string& name, std::vector<int64_t> members) {
  std::sort(members.begin(), members.end());
  if (const auto found = groups_.find(name); found != groups_.end()) {
    BRAID_CHECK(found->second->members() == members, cat("group ", name, " has other members"));
    return found->second.get();
  }
  const CommunicatorContext context{global_rank(), options_.deadline_s, &board_, store_.get()};
  std::unique_ptr<GroupBackend> backend;
  if (members.size() > 1) {
    const auto self = std::find(members.begin(), members.end(), global_rank());
    BRAID_CHECK(self != members.end(), cat("rank is no member of group ", name));
    const PositionBoard::Waiting waiting(
        board_, cat("connecting group ", name, " of ranks ", rank_list(members)));
    const std::string prefix = cat("members/", name, "/");
    BRAID_TRY(store_->set(cat(prefix, global_rank()), "1"));
    BRAID_TRY(await_ranks(prefix, members, cat("group ", name)));
    BRAID_ASSIGN(backend, connect_gloo(*store_, {.name = name,
                                                 .place = static_cast<int>(self - members.begin()),
                                                 .size = static_cast<int>(members.size()),
                                                 .deadline_s = options_.deadline_s,
                                                 .one_machine = membership_.one_machine()}));
  }
  auto& slot = groups_[name];
  slot = std::make_unique<Communicator>(name, std::move(members), context, std::move(backend));
  return slot.get();
}

Result<Communicator*> World::everyone() { return group("everyone", ranks_below(world_size())); }

Status World::fail(const Status& cause) {
  if (watchdog_ == nullptr) return cause;
  if (!told_.ok()) return told_;
  // A lost peer is only the consequence of what ended it.
  const bool maybe_consequence =
      cause.code() == Code::kUnavailable || cause.code() == Code::kDeadline;
  if (maybe_consequence)
    if (const auto first = store_->wait(kFailureKey, kPrimaryCause_s); first.ok())
      if (const auto known = parse_failure(*first); known.ok()) watchdog_->end_process(*known);
  const RankFailure own{global_rank(), cause.message(), board_.text()};
  const auto first = store_->set_once(kFailureKey, failure_record(own));
  if (first.ok() && *first != failure_record(own))
    if (const auto known = parse_failure(*first); known.ok()) watchdog_->end_process(*known);
  if (serves_store()) await_endings();
  told_ = {cause.code(), failure_text(own)};
  return told_;
}

Status World::leave() {
  if (watchdog_ == nullptr) return {};
  if (serves_store())
    for (int64_t rank = 1; rank < world_size(); ++rank)
      BRAID_TRY(store_->wait(cat("left/", rank), options_.leave_s)
                    .at(cat("rank ", rank, " has not left"))
                    .status());
  watchdog_->finish();
  watchdog_.reset();
  return store_->set(cat("left/", global_rank()), "1");
}

bool World::serves_store() const { return global_rank() == 0 && !membership_.store_exists; }

void World::await_endings() {
  const Deadline deadline = deadline_in(kEndings_s);
  for (int64_t rank = 1; rank < world_size(); ++rank) {
    const double left_s =
        std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (left_s <= 0 || !store_->wait(cat(kEndedKey, rank), left_s).ok()) return;
  }
}

Traffic World::traffic(Transfer transfer) const {
  Traffic out;
  for (const auto& [name, group] : groups_) {
    out.calls += group->traffic(transfer).calls;
    out.bytes += group->traffic(transfer).bytes;
  }
  return out;
}

}  // namespace braid

#include "comm/world.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/ending.h"
#include "comm/failure.h"
#include "comm/group_backend.h"
#include "comm/wired_backend.h"
#include "comm/wires.h"
#include "host/file.h"
#include "host/machine.h"
#include "host/process.h"
#include "host/sha256.h"

namespace braid::inline comm {
namespace {

// Files of a rank by itself, and most of those for each other one in meshes, over wires, and at the
// store that it serves (docs/ranks.md, "What a rank opens").
constexpr int64_t kFilesOfARank = 40;
constexpr int64_t kFilesOfAPeer = 6, kFilesOfAWire = 2, kFilesOfAServed = 2;
// A peer's end is seen as a broken connection before its cause is in the store: wait this long.
constexpr double kPrimaryCause_s = 4;
// Who is missing is asked by one rank for all: whoever has not heard it by then asks, too.
constexpr double kMissingTold_s = 10;
// A rank that cannot begin lets the others hear of it that begin so much later.
constexpr double kLateStart_s = 10;

std::vector<int64_t> ranks_below(int64_t count) {
  std::vector<int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// A claim that differs: its words on some ranks and on the one that they compare with.
std::string difference_text(const std::string& ranks, const Json& difference) {
  const auto text = [&](int field) { return difference[field].get<std::string>(); };
  return cat("rank ", ranks, " ", text(0), " ", text(1), ", rank ", difference[3].get<int64_t>(),
             " ", text(2));
}

// File names need not be UTF-8.
std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// As many as one can read.
constexpr size_t kMostDifferences = 8;

// What the claims of a rank have against those of another: [name, its value, the other's, the other
// rank]; of names alone that `both` have where it says so.
Json differences_between(const Claims& own, const Claims& others, int64_t other, bool both) {
  constexpr const char* kAbsent = "not at all";
  Json out = Json::array();
  const auto value = [&](const Claims& claims, const std::string& name) -> std::string {
    const auto found = claims.find(name);
    return found == claims.end() ? kAbsent : found->second;
  };
  std::set<std::string> names;
  for (const Claims* claims : {&others, &own})
    for (const auto& item : *claims) names.insert(item.first);
  if (both)
    std::erase_if(names, [&](const std::string& name) {
      return own.count(name) == 0 || others.count(name) == 0;
    });
  for (const std::string& name : names)
    if (value(own, name) != value(others, name))
      out.push_back(Json::array({name, value(own, name), value(others, name), other}));
  return out;
}

const std::vector<int64_t> kFirst = {0};

constexpr const char* kCame = "came/";  // the point where all ranks of the job meet
// Of a point that ranks come to: how many came, and that all have.
constexpr const char* kCount = "count";
constexpr const char* kAll = "all";
constexpr const char* kNotice = "notice/";    // that it takes long: how many came to the nth
constexpr const char* kMissing = "missing/";  // who they are while so many have come
constexpr const char* kLeft = "left/";        // the point itself, of all but who serves the store
constexpr const char* kDiffer = "differ";     // how many, and with the rank how

// Names never begin with '#'.
std::string settled_key(const std::string& list, const std::string& name) {
  return cat("settled/", list, "/", name);
}

// Those of the ranks that have not come to a point: a request for each of them.
Result<std::vector<int64_t>> ask_missing(Store& store, const std::string& point,
                                         const std::vector<int64_t>& ranks) {
  std::vector<std::string> keys;
  for (const int64_t rank : ranks) keys.push_back(cat(point, rank));
  BRAID_ASSIGN(const auto seen, store.look(keys));
  std::vector<int64_t> missing;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (!seen[i]) missing.push_back(ranks[i]);
  return missing;
}

// In the place of "all ranks have come": which one does not, and why.
std::string no_start_text(Code code, const RankFailure& failure) {
  return cat(static_cast<int>(code), " ", failure_record(failure));
}

std::optional<Status> parse_no_start(const std::string& text) {
  const size_t space = text.find(' ');
  int64_t code = 0;
  if (space == std::string::npos || !parse_int(text.substr(0, space), &code)) return std::nullopt;
  const auto failure = parse_failure(std::string_view(text).substr(space + 1));
  if (!failure.ok()) return failure.status();
  return Status(static_cast<Code>(code), failure_text(*failure));
}

// `cause`, which the others hear where they wait for all.
Status tell_no_start(Store& store, const Membership& membership, const Status& cause) {
  const RankFailure own{membership.global_rank, cause.message(), kBeforeMeeting};
  (void)store.set_once(cat(kCame, kAll), no_start_text(cause.code(), own));
  (void)store.set(cat(kEndedKey, membership.global_rank), "1");
  if (membership.serves_store()) await_endings(store, membership, 0, kLateStart_s);
  return cause;
}

int64_t most_open_files(const Membership& membership, int64_t in_mesh) {
  const int64_t ranks = membership.world_size;
  return kFilesOfARank + kFilesOfAPeer * in_mesh + kFilesOfAWire * (ranks - in_mesh) +
         (membership.serves_store() ? kFilesOfAServed * ranks : 0);
}

// The environment's word is for trials (docs/ranks.md).
int64_t most_in_mesh(const WorldOptions& options) {
  int64_t out = options.mesh_ranks;
  const char* const stated = std::getenv("BRAID_MESH_RANKS");
  if (out < 0 && stated != nullptr && parse_int(stated, &out) && out >= 0) return out;
  return out < 0 ? kMostInMesh : out;
}

}  // namespace

Result<std::string> binary_hash() {
  BRAID_ASSIGN(const MappedFile file, MappedFile::open("/proc/self/exe"));
  return sha256_hex(file.text());
}

World::World(const Membership& membership, const WorldOptions& options)
    : membership_(membership), options_(options) {}

World::~World() {
  if (wires_ != nullptr) wires_->close();  // groups wait for nothing then
}

Result<std::unique_ptr<World>> World::join(const Membership& membership,
                                           const WorldOptions& options) {
  std::unique_ptr<World> world(new World(membership, options));
  if (membership.world_size == 1) return world;
  const int64_t in_mesh = std::min(membership.world_size, most_in_mesh(options));
  const int64_t wired = membership.world_size - in_mesh;
  if (const Status files = check_open_files(most_open_files(membership, in_mesh))
                               .at(cat("a job of ", membership.world_size, " ranks"));
      !files.ok())
    return fail_before_join(membership, files);
  BRAID_ASSIGN(world->store_, Store::open(membership, options.join_s, options.notice_s));
  BRAID_ASSIGN(world->watchdog_,
               Watchdog::start(*world->store_, membership, world->board_, options.watchdog));
  if (wired > 0) {
    auto wires = Wires::open(*world->store_, membership);
    if (!wires.ok()) return tell_no_start(*world->store_, membership, wires.status());
    world->wires_ = *std::move(wires);
  }
  BRAID_TRY(world->meet());
  if (wired > 0) world->wires_->meet(world->watchdog_->store());
  return world;
}

// All ranks come, or one of them says why it does not.
Status World::meet() {
  BRAID_TRY(arrive(kCame, world_size()));
  const PositionBoard::Waiting waiting(board_, "the other ranks, to begin");
  std::string said;
  BRAID_TRY(await_ranks(kCame, ranks_below(world_size()), "the start of the job", options_.join_s,
                        &said));
  const std::optional<Status> failed = parse_no_start(said);
  if (!failed) return ok_status();
  BRAID_TRY(store_->set(cat(kEndedKey, global_rank()), "1"));
  if (membership_.serves_store()) await_endings(*store_, membership_, 0, kLateStart_s);
  return *failed;
}

Status World::fail_before_join(const Membership& membership, const Status& cause) {
  if (membership.world_size == 1 || membership.started_by == kOwnLauncher) return cause;
  const auto store = Store::open(membership, kLateStart_s, kLateStart_s);
  if (!store.ok()) return cause;
  return tell_no_start(**store, membership, cause);
}

Result<std::string> World::job() {
  if (world_size() == 1) return process_identity();
  return store_->wait(process_key(0), options_.deadline_s).at("the process of rank 0");
}

Status World::arrive(const std::string& point, int64_t ranks) {
  BRAID_TRY(store_->set(cat(point, global_rank()), "1"));
  BRAID_ASSIGN(const int64_t come, store_->add(cat(point, kCount), 1));
  return come == ranks ? store_->set(cat(point, kAll), "1") : ok_status();
}

// Ranks that give up at the same time say the same: the first of them asks, and tells the others.
Result<std::vector<int64_t>> World::missing_at(const std::string& point,
                                               const std::vector<int64_t>& ranks) {
  BRAID_ASSIGN(const int64_t come, store_->add(cat(point, kCount), 0));
  const std::string told = cat(point, kMissing, come);
  BRAID_ASSIGN(const int64_t asked, store_->add(cat(told, "/asked"), 1));
  if (asked > 1)
    if (const auto text = store_->wait(told, kMissingTold_s); text.ok())
      if (const auto list = parse_json(*text, told); list.ok())
        return list->get<std::vector<int64_t>>();
  BRAID_ASSIGN(std::vector<int64_t> missing, ask_missing(*store_, point, ranks));
  BRAID_TRY(store_->set(told, json_text(missing)));
  return missing;
}

Status World::await_ranks(const std::string& point, const std::vector<int64_t>& ranks,
                          const std::string& what, double limit_s, std::string* said) {
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = deadline_in(limit_s);
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  double notice_s = options_.notice_s;
  for (int notice = 1;;) {
    const auto now = std::chrono::steady_clock::now();
    const double wait_s = std::min(seconds(deadline - now), notice_s - seconds(now - begin));
    // One key, whatever the number of ranks; who is missing is asked only when it takes long.
    if (const auto all = store_->wait(cat(point, kAll), std::max(wait_s, 0.001)); all.ok()) {
      if (said != nullptr) *said = *all;
      return ok_status();
    }
    const double waited_s = seconds(std::chrono::steady_clock::now() - begin);
    const bool late = waited_s >= limit_s;
    if (!late && waited_s < notice_s) {
      BRAID_TRY(store_->add(cat(point, kCount), 0).status());  // it is not gone, which ends waits
      continue;
    }
    if (!late) {
      notice_s = 4 * waited_s;
      // Of those that wait, the first that finds it long asks and says it; the others wait on.
      BRAID_ASSIGN(const int64_t came, store_->add(cat(point, kNotice, notice++), 1));
      if (came > 1) continue;
    }
    BRAID_ASSIGN(const std::vector<int64_t> missing,
                 late ? missing_at(point, ranks) : ask_missing(*store_, point, ranks));
    if (missing.empty()) return ok_status();
    const std::string whom =
        cat(what, ": rank ", rank_list(missing), " of ", world_size(), " did not come to ",
            store_place(membership_), " within ", format_seconds(std::min(waited_s, limit_s)));
    if (late) return {Code::kDeadline, whom};
    log_warning(cat(whom, "; rank ", global_rank(), " waits ", format_seconds(limit_s - waited_s),
                    " more"));
  }
}

// For ranks that compare theirs with these.
Status World::publish(const std::string& place, const Claims& claims) {
  const std::string own = json_text(claims);
  BRAID_TRY(store_->set(cat(place, "claims"), json_text(Json::array({global_rank(), claims}))));
  return store_->set(cat(place, "digest"), sha256_hex(own));
}

// What this rank's claims have against those that were published at a place.
Result<Json> World::differences_from(const std::string& place, const Claims& claims, bool both) {
  BRAID_ASSIGN(const std::string digest,
               store_->wait(cat(place, "digest"), options_.deadline_s).at(place));
  if (digest == sha256_hex(json_text(claims))) return Json::array();
  BRAID_ASSIGN(const std::string text,
               store_->wait(cat(place, "claims"), options_.deadline_s).at(place));
  BRAID_ASSIGN(const Json published, parse_json(text, "claims of another rank"));
  return differences_between(claims, published[1].get<Claims>(), published[0], both);
}

// The message of ranks that differ. Those that differ alike are named together.
Result<std::string> World::verdict(const std::string& prefix, const std::string& remedy) {
  const std::vector<int64_t> all = ranks_below(world_size());
  std::map<Json, std::vector<int64_t>> found;
  std::vector<std::string> keys;
  for (const int64_t rank : all) keys.push_back(cat(prefix, kDiffer, rank));
  BRAID_ASSIGN(const auto texts_of_ranks, store_->look(keys));
  for (const int64_t rank : all) {
    if (!texts_of_ranks[rank]) continue;
    BRAID_ASSIGN(const Json differences,
                 parse_json(*texts_of_ranks[rank], cat("claims of rank ", rank)));
    for (const Json& difference : differences) found[difference].push_back(rank);
  }
  std::vector<std::string> texts;
  for (const auto& [difference, ranks] : found)
    if (texts.size() < kMostDifferences)
      texts.push_back(difference_text(rank_list(ranks), difference));
  const std::string more = found.size() > texts.size()
                               ? cat("; and ", found.size() - texts.size(), " more differences")
                               : "";
  return cat(braid::join(texts, "; "), more, ": ", remedy);
}

// What each rank has against others becomes one answer on all.
Status World::conclude(const std::string& point, const Json& differences,
                       const std::string& remedy) {
  const std::string prefix = cat("agree/", point, "/"), ends = cat("refused/", point, "/");
  if (!differences.empty()) {
    BRAID_TRY(store_->set(cat(prefix, kDiffer, global_rank()), json_text(differences)));
    BRAID_TRY(store_->add(cat(prefix, kDiffer), 1).status());
  }
  BRAID_TRY(arrive(prefix, world_size()));
  {
    const PositionBoard::Waiting waiting(board_, "what the other ranks say of themselves");
    BRAID_TRY(await_ranks(prefix, ranks_below(world_size()), "agreement before the first step",
                          options_.deadline_s));
  }
  BRAID_ASSIGN(const int64_t differ, store_->add(cat(prefix, kDiffer), 0));
  if (differ == 0) return ok_status();
  refused_ = true;
  // One rank reads what all say.
  std::string said;
  if (global_rank() == 0) {
    BRAID_ASSIGN(said, verdict(prefix, remedy));
    BRAID_TRY(store_->set(cat(prefix, "verdict"), said));
  } else {
    const PositionBoard::Waiting waiting(board_, "what the ranks do not agree on", kFirst);
    BRAID_ASSIGN(said, store_->wait(cat(prefix, "verdict"), options_.deadline_s).at(prefix));
  }
  // The store goes with rank 0: it stays until the others have read why.
  BRAID_TRY(arrive(ends, world_size()));
  if (global_rank() == 0)
    BRAID_TRY(await_ranks(ends, ranks_below(world_size()), "the end", options_.join_s));
  return invalid_input(said);
}

Status World::agree(const std::string& point, const Claims& claims, const std::string& remedy) {
  if (world_size() == 1) return {};
  const std::string place = cat("agree/", point, "/");
  Json differences = Json::array();
  if (global_rank() == 0) {
    BRAID_TRY(publish(place, claims));
  } else {
    const PositionBoard::Waiting waiting(board_, "what rank 0 says of itself", kFirst);
    BRAID_ASSIGN(differences, differences_from(place, claims, false));
  }
  return conclude(point, differences, remedy);
}

Status World::agree_on_parts(const std::string& point, const std::vector<PartClaims>& parts,
                             const std::string& remedy) {
  if (world_size() == 1) return {};
  const std::string time = cat(point, " ", ++agreed_on_parts_);
  const auto place = [&](const std::string& part) { return cat("agree/", time, "/", part, "/"); };
  for (const PartClaims& part : parts)
    if (part.first) BRAID_TRY(publish(place(part.part), part.claims));
  Json differences = Json::array();
  const auto compare = [&](const std::string& with, const Claims& claims) -> Status {
    BRAID_ASSIGN(const Json found, differences_from(place(with), claims, true));
    const bool known =
        found.empty() || std::count(differences.begin(), differences.end(), found[0]);
    if (!known) differences.push_back(found[0]);
    return ok_status();
  };
  {
    std::vector<int64_t> peers;
    for (const PartClaims& part : parts)
      peers.insert(peers.end(), part.waits_for.begin(), part.waits_for.end());
    const PositionBoard::Waiting waiting(board_, cat("what other ranks say of ", point), peers);
    for (const PartClaims& part : parts) {
      if (!part.first) BRAID_TRY(compare(part.part, part.claims));
      for (const std::string& other : part.overlapping) BRAID_TRY(compare(other, part.claims));
    }
  }
  return conclude(time, differences, remedy);
}

Result<std::string> World::told_by_first(const std::string& point, const std::string& text) {
  if (world_size() == 1) return text;
  const std::string key = cat("told/", point);
  if (global_rank() == 0) {
    BRAID_TRY(store_->set(key, text));
    return text;
  }
  const PositionBoard::Waiting waiting(board_, cat("what rank 0 says of ", point), kFirst);
  return store_->wait(key, options_.deadline_s).at(key);
}

Result<std::optional<std::string>> World::settled(const std::string& list,
                                                  const std::string& name) {
  if (world_size() == 1) return std::optional<std::string>();
  BRAID_ASSIGN(const auto found, store_->look({settled_key(list, name)}));
  return found.front();
}

Result<std::string> World::settle(const std::string& list, const std::string& name,
                                  const std::string& value) {
  if (world_size() == 1) return value;
  BRAID_ASSIGN(const int64_t asked, store_->add(settled_key(list, cat("#of ", name)), 1));
  if (asked == 1) {
    BRAID_ASSIGN(const int64_t number, store_->add(settled_key(list, "#"), 1));
    BRAID_TRY(store_->set(settled_key(list, cat("#", number)), name));
  }
  return store_->set_once(settled_key(list, name), value);
}

Result<std::vector<std::pair<std::string, std::string>>> World::settled_behind(
    const std::string& list, int64_t seen) {
  std::vector<std::pair<std::string, std::string>> out;
  if (world_size() == 1) return out;
  BRAID_ASSIGN(const int64_t count, store_->add(settled_key(list, "#"), 0));
  for (int64_t number = seen + 1; number <= count; ++number) {
    BRAID_ASSIGN(const auto name, store_->look({settled_key(list, cat("#", number))}));
    if (!name.front()) break;  // on its way
    BRAID_ASSIGN(const auto value, settled(list, *name.front()));
    if (!value) break;
    out.emplace_back(*name.front(), *value);
  }
  return out;
}

Result<Communicator*> World::group(const std::string& name, std::vector<int64_t> members) {
  if (const auto found = groups_.find(name); found != groups_.end()) {
    BRAID_CHECK(found->second->members() == members, cat("group ", name, " has other members"));
    return found->second.get();
  }
  const CommunicatorContext context{global_rank(), options_.deadline_s, &board_, store_.get()};
  std::unique_ptr<GroupBackend> backend;
  if (members.size() > 1) {
    BRAID_ASSIGN(backend, connect(name, members));
  }
  auto& slot = groups_[name];
  slot = std::make_unique<Communicator>(name, std::move(members), context, std::move(backend));
  return slot.get();
}

Result<std::unique_ptr<GroupBackend>> World::connect(const std::string& name,
                                                     const std::vector<int64_t>& members) {
  const auto self = std::find(members.begin(), members.end(), global_rank());
  BRAID_CHECK(self != members.end(), cat("rank is no member of group ", name));
  const auto place = static_cast<int>(self - members.begin());
  const PositionBoard::Waiting waiting(
      board_, cat("connecting group ", name, " of ranks ", rank_list(members)));
  const std::string prefix = cat("members/", name, "/");
  BRAID_TRY(arrive(prefix, std::ssize(members)));
  BRAID_TRY(await_ranks(prefix, members, cat("group ", name), options_.join_s));
  if (std::ssize(members) > most_in_mesh(options_))
    return wired_backend(*wires_, {.name = name, .members = members, .place = place});
  return connect_gloo(*store_, {.name = name,
                                .place = place,
                                .size = static_cast<int>(members.size()),
                                .deadline_s = options_.deadline_s,
                                .one_machine = membership_.one_machine()});
}

int64_t World::wired_to() const { return wires_ == nullptr ? 0 : wires_->peers(); }

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
  run_endings(kEndingLimit_s);  // peers that are gone leave transfers that never end
  if (membership_.serves_store()) await_endings(*store_, membership_);
  told_ = {cause.code(), failure_text(own)};
  return told_;
}

Status World::leave() {
  if (watchdog_ == nullptr) return {};
  const PositionBoard::Waiting waiting(board_, "the other ranks, to end");
  if (membership_.serves_store()) BRAID_TRY(await_leaving());
  watchdog_->finish();
  watchdog_.reset();
  return membership_.serves_store() ? ok_status() : arrive(kLeft, world_size() - 1);
}

// The store goes with this rank. One key, whatever the number of ranks; who has not left is asked
// where it takes too long.
Status World::await_leaving() {
  const Status all = store_->wait(cat(kLeft, kAll), options_.leave_s).status();
  if (all.ok()) return ok_status();
  std::vector<int64_t> others = ranks_below(world_size());
  others.erase(others.begin() + global_rank());
  BRAID_ASSIGN(const std::vector<int64_t> missing, ask_missing(*store_, kLeft, others));
  if (missing.empty()) return ok_status();
  return Status{all.code(), cat("rank ", rank_list(missing), missing.size() == 1 ? " has" : " have",
                                " not left within ", format_seconds(options_.leave_s))};
}

Traffic World::traffic(Transfer transfer) const {
  Traffic out;
  for (const auto& [name, group] : groups_) {
    const Traffic& traffic = group->traffic(transfer);
    out.calls += traffic.calls;
    out.given += traffic.given, out.received += traffic.received;
  }
  return out;
}

}  // namespace braid::inline comm

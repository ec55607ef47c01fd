#include "comm/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "comm/ending.h"
#include "host/process.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

constexpr size_t kNamedPeers = 4;  // in a message

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void await_endings(Store& store, const Membership& membership, int64_t failed, double limit_s) {
  const Deadline deadline = deadline_in(limit_s);
  for (int64_t rank = 1; rank < membership.world_size; ++rank) {
    const double left_s =
        std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (rank == failed) continue;
    if (left_s <= 0 || !store.wait(cat(kEndedKey, rank), left_s).ok()) return;
  }
}

std::string process_key(int64_t rank) { return cat("process/", rank); }

Result<std::unique_ptr<Watchdog>> Watchdog::start(Store& store, const Membership& membership,
                                                  PositionBoard& board,
                                                  const WatchdogOptions& options) {
  const int64_t rank = membership.global_rank;
  BRAID_ASSIGN(const std::string first, store.set_once(process_key(rank), process_identity()));
  if (first != process_identity())
    return invalid_input(cat("rank ", rank, " is there twice: ", process_text(first),
                             " came first to ", store_place(membership),
                             "; give each process a RANK of its own, and each job a MASTER_PORT of "
                             "its own"));
  BRAID_ASSIGN(std::unique_ptr<Store> own, store.duplicate());
  return std::unique_ptr<Watchdog>(new Watchdog(std::move(own), membership, board, options));
}

Watchdog::Watchdog(std::unique_ptr<Store> store, const Membership& membership, PositionBoard& board,
                   const WatchdogOptions& options)
    : store_(std::move(store)),
      membership_(membership),
      board_(board),
      options_(options),
      watched_((membership.global_rank + 1) % membership.world_size),
      stall_(watched_),
      notice_s_(options.quiet_s),
      stall_s_(options.stall_s) {
  last_change_s_ = now_s();
  // A launcher may be stopped with its ranks, by a person: nobody knows its process here.
  const double lost_s = membership_.store_exists ? options_.stopped_s : options_.lost_s;
  if (!membership_.serves_store())
    silence_ = std::make_unique<StoreSilence>(
        SilenceOptions{options_.interval_s, options_.quiet_s, lost_s, options_.stopped_s,
                       membership_.store_exists ? "the launcher" : "rank 0"},
        [this](const std::string& cause) { end_without_store(cause); });
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  if (thread_.joinable()) finish();
}

void Watchdog::finish() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  // The store may be gone with the rank that served it; then nobody looks any more.
  std::optional<StoreSilence::Asking> asking;
  if (silence_) asking.emplace(*silence_);
  (void)store_->set(beat_key(membership_.global_rank), kDone);
}

void Watchdog::run() {
  double last_s = now_s();
  for (std::unique_lock lock(mutex_); !stop_;) {
    lock.unlock();
    const double silent_s = now_s() - last_s;
    if (silent_s > options_.quiet_s + options_.interval_s) {
      log_warning(cat("rank ", membership_.global_rank, " stood still for ",
                      format_seconds(silent_s), " (stopped, or the machine is overloaded)"));
      stall_.forgive(silent_s);  // the watched rank may have stood still as well
    }
    last_s = now_s();
    std::optional<StoreSilence::Asking> asking;
    if (silence_) asking.emplace(*silence_);
    const Status status = look_once();
    asking.reset();
    lock.lock();
    if (stop_) return;
    if (!status.ok()) end_process({server(), cat("the store is gone: ", status.message()), ""});
    wake_.wait_for(lock, std::chrono::duration<double>(options_.interval_s));
  }
}

// Of ranks that wait alike the first one says it; longer waits than before only, so that a job with
// long waits in every step does not go on about them.
void Watchdog::say_for_whom(const Beat& own) {
  const double waited_s = own.waits ? own.waits->seconds : 0;
  if (waited_s <= notice_s_ || own.waits->peers.empty()) return;
  notice_s_ = 2 * waited_s;
  // In a large group nearly all learn from the first of these that another one says it.
  const std::vector<int64_t>& peers = own.waits->peers;
  std::vector<std::string> working;
  for (size_t begin = 0; begin < peers.size(); begin += kBeatsAtOnce) {
    const size_t end = std::min(peers.size(), begin + kBeatsAtOnce);
    std::vector<std::string> keys;
    for (size_t i = begin; i < end; ++i) keys.push_back(beat_key(peers[i]));
    const auto beats = store_->look(keys);
    if (!beats.ok()) return;
    for (size_t i = begin; i < end; ++i) {
      const Beat beat = parse_beat((*beats)[i - begin].value_or(kBeforeMeeting));
      if (!beat.waits) working.push_back(cat("rank ", peers[i], " is at: ", beat.position));
      if (beat.waits && peers[i] < membership_.global_rank) return;
    }
  }
  const size_t more = working.size() - std::min(working.size(), kNamedPeers);
  working.resize(working.size() - more);
  log_warning(cat("rank ", membership_.global_rank, " has waited for ", format_seconds(waited_s),
                  ": ", own.position, working.empty() ? "" : "; ", join(working, "; "),
                  more > 0 ? cat("; and ", more, " more ranks that do not wait") : ""));
}

Status Watchdog::look_once() {
  if (const Status failed = board_.settle(); !failed.ok())
    declare({membership_.global_rank, failed.message(), board_.text()});
  const Beat own{++beats_, progress_count(), board_.waiting(options_.quiet_s), board_.text()};
  BRAID_TRY(store_->set(beat_key(membership_.global_rank), beat_text(own)));
  say_for_whom(own);
  BRAID_ASSIGN(const auto failed, store_->look({kFailureKey}));  // apart: it hardly ever is there
  if (failed[0]) {
    const auto failure = parse_failure(*failed[0]);
    BRAID_CHECK(failure.ok(), failure.status().message());
    // The rank that failed ends itself, with its message, unless it does not know.
    if (failure->global_rank != membership_.global_rank || failure->given_up) end_process(*failure);
    return {};
  }
  BRAID_ASSIGN(const auto seen,
               store_->look({beat_key(watched_), process_key(watched_), process_key(0)}));
  if (seen[1]) process_ = *seen[1];
  if (seen[2] && silence_ && !membership_.store_exists) silence_->set_process(*seen[2]);
  if (const auto pid = view_ ? std::nullopt : living_process(process_))
    view_ = PositionView::open(*pid);
  if (membership_.world_size > 1 && !watched_done_) judge_watched(seen[0].value_or(""));
  return {};
}

// Of this moment, or of its death; from another machine what it last said.
std::string Watchdog::watched_position() const {
  const std::string seen = view_ ? view_->text() : "";
  if (!seen.empty()) return seen;
  return last_beat_.empty() ? kBeforeMeeting : parse_beat(last_beat_).position;
}

void Watchdog::judge_watched(const std::string& beat) {
  if (beat == kDone) {
    watched_done_ = true;
    return;
  }
  const double now = now_s();
  if (beat != last_beat_) {
    if (named_)
      log_info(cat("rank ", watched_, " is back after ", format_seconds(now - last_change_s_)));
    if (now - last_change_s_ > options_.quiet_s) stall_.forgive(now - last_change_s_);
    named_ = false;
    last_beat_ = beat;
    last_change_s_ = now;
    if (const auto stuck = stall_.judge(parse_beat(beat), now, stall_s_, *store_)) declare(*stuck);
    return;
  }
  const double silent_s = now - last_change_s_;
  const ProcessState state = process_state(process_);
  if (state == ProcessState::kGone) return judge_gone(now);
  const bool stopped = state == ProcessState::kStopped;
  if (!beat.empty() && silent_s > (stopped ? options_.stopped_s : options_.lost_s))
    return declare_lost(
        cat(stopped ? "it has been stopped (SIGSTOP) for " : "it has given no sign of life for ",
            format_seconds(silent_s)));
  if (!beat.empty() && silent_s > options_.quiet_s && !named_) {
    named_ = true;
    log_warning(cat("rank ", watched_, stopped ? " is stopped (SIGSTOP)" : " gives no sign of life",
                    " since ", format_seconds(silent_s), "; it was at: ", watched_position()));
  }
}

// A launcher says by which signal it ended, or with which exit code.
void Watchdog::judge_gone(double now) {
  if (!gone_since_s_) gone_since_s_ = now;
  const bool launched = membership_.started_by == kOwnLauncher;
  if (launched && now - *gone_since_s_ < options_.launcher_s) return;
  declare_lost("its process is gone", false);
}

void Watchdog::declare_lost(const std::string& cause, bool lives) {
  // What it wrote between the two looks counts: it may have ended as planned.
  const auto again = store_->look({beat_key(watched_)});
  if (again.ok() && (*again)[0] && *(*again)[0] == kDone) {
    watched_done_ = true;
    return;
  }
  declare({watched_, cause, watched_position(), lives});
}

void Watchdog::declare(const RankFailure& failure) {
  const std::lock_guard says_it(ending_);  // others of this process end it once they see the record
  const auto first = store_->set_once(kFailureKey, failure_record(failure));
  if (!first.ok()) return;
  if (*first == failure_record(failure))
    std::fprintf(stderr, "braid: error: %s\n", failure_text(failure).c_str());
  const auto known = parse_failure(*first);
  end_now(known.ok() ? *known : failure);
}

// Nobody can be told, so that each rank says it.
void Watchdog::end_without_store(const std::string& cause) {
  std::fprintf(stderr, "braid: error: %s\nbraid: rank %lld ends; it was at: %s\n",
               failure_text({server(), cause, ""}).c_str(),
               static_cast<long long>(membership_.global_rank), board_.text().c_str());
  std::fflush(nullptr);
  run_endings(kEndingLimit_s);
  ::_exit(1);
}

void Watchdog::end_process(const RankFailure& failure) {
  const std::lock_guard lock(ending_);
  end_now(failure);
}

void Watchdog::end_now(const RankFailure& failure) {
  const bool self = failure.global_rank == membership_.global_rank;
  const std::string why = self ? "it was given up" : failed_text(failure);
  std::fprintf(stderr, "braid: rank %lld ends because %s; it was at: %s\n",
               static_cast<long long>(membership_.global_rank), why.c_str(), board_.text().c_str());
  std::fflush(nullptr);
  run_endings(kEndingLimit_s);
  (void)store_->set(cat(kEndedKey, membership_.global_rank), "1");
  if (membership_.serves_store())
    await_endings(*store_, membership_, failure.given_up ? 0 : failure.global_rank);
  ::_exit(1);
}

}  // namespace braid::inline comm

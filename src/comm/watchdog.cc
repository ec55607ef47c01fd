#include "comm/watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"

namespace braid::inline comm {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string beat_key(int64_t rank) { return cat("beat/", rank); }

// A beat is "NUMBER POSITION", or this.
constexpr const char* kDone = "done";

std::string position_of_beat(const std::string& beat) {
  const size_t blank = beat.find(' ');
  return blank == std::string::npos ? beat : beat.substr(blank + 1);
}

}  // namespace

std::string process_key(int64_t rank) { return cat("process/", rank); }

std::vector<std::string> last_positions(Store& store, const std::vector<int64_t>& ranks) {
  std::vector<std::string> keys, out;
  for (const int64_t rank : ranks) keys.push_back(beat_key(rank));
  const auto beats = store.look(keys);
  if (!beats.ok()) return {"the store does not answer"};
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto& beat = (*beats)[i];
    out.push_back(cat("rank ", ranks[i], ": ", beat ? position_of_beat(*beat) : "never came"));
  }
  return out;
}

std::string last_position(Store& store, int64_t rank) {
  const auto beats = store.look({beat_key(rank)});
  return beats.ok() && (*beats)[0] ? position_of_beat(*(*beats)[0]) : "";
}

Result<std::unique_ptr<Watchdog>> Watchdog::start(Store& store, const Membership& membership,
                                                  const PositionBoard& board,
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

Watchdog::Watchdog(std::unique_ptr<Store> store, const Membership& membership,
                   const PositionBoard& board, const WatchdogOptions& options)
    : store_(std::move(store)), membership_(membership), board_(board), options_(options) {
  watched_ = (membership_.global_rank + 1) % membership_.world_size;
  last_change_s_ = now_s();
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
  (void)store_->set(beat_key(membership_.global_rank), kDone);
}

void Watchdog::run() {
  double last_s = now_s();
  for (std::unique_lock lock(mutex_); !stop_;) {
    lock.unlock();
    const double silent_s = now_s() - last_s;
    if (silent_s > options_.quiet_s + options_.interval_s)
      log_warning(cat("rank ", membership_.global_rank, " stood still for ",
                      format_seconds(silent_s), " (stopped, or the machine is overloaded)"));
    last_s = now_s();
    const Status status = look_once();
    lock.lock();
    if (stop_) return;
    if (!status.ok()) {
      const int64_t server = membership_.store_exists ? -1 : 0;
      end_process({server, cat("the store is gone: ", status.message()), ""});
    }
    wake_.wait_for(lock, std::chrono::duration<double>(options_.interval_s));
  }
}

Status Watchdog::look_once() {
  BRAID_TRY(store_->set(beat_key(membership_.global_rank), cat(++beats_, " ", board_.text())));
  BRAID_ASSIGN(const auto seen,
               store_->look({kFailureKey, beat_key(watched_), process_key(watched_)}));
  if (seen[0]) {
    const auto failure = parse_failure(*seen[0]);
    BRAID_CHECK(failure.ok(), failure.status().message());
    // The rank that failed ends itself, with its message.
    if (failure->global_rank != membership_.global_rank) end_process(*failure);
    return {};
  }
  if (seen[2]) process_ = *seen[2];
  if (const auto pid = view_ ? std::nullopt : living_process(process_))
    view_ = PositionView::open(*pid);
  if (membership_.world_size > 1 && !watched_done_) judge_watched(seen[1].value_or(""));
  return {};
}

// Of this moment, or of its death; from another machine what it last said.
std::string Watchdog::watched_position() const {
  const std::string seen = view_ ? view_->text() : "";
  if (!seen.empty()) return seen;
  return last_beat_.empty() ? kBeforeMeeting : position_of_beat(last_beat_);
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
    named_ = false;
    last_beat_ = beat;
    last_change_s_ = now;
    return;
  }
  const double silent_s = now - last_change_s_;
  const ProcessState state = process_state(process_);
  if (state == ProcessState::kGone) return declare_lost("its process is gone");
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

void Watchdog::declare_lost(const std::string& cause) {
  // What it wrote between the two looks counts: it may have ended as planned.
  const auto again = store_->look({beat_key(watched_)});
  if (again.ok() && (*again)[0] && *(*again)[0] == kDone) {
    watched_done_ = true;
    return;
  }
  const RankFailure failure{watched_, cause, watched_position()};
  const std::lock_guard says_it(ending_);  // others of this process end it once they see the record
  const auto first = store_->set_once(kFailureKey, failure_record(failure));
  if (!first.ok()) return;
  if (*first == failure_record(failure))
    std::fprintf(stderr, "braid: error: %s\n", failure_text(failure).c_str());
  const auto known = parse_failure(*first);
  end_now(known.ok() ? *known : failure);
}

void Watchdog::end_process(const RankFailure& failure) {
  const std::lock_guard lock(ending_);
  end_now(failure);
}

void Watchdog::end_now(const RankFailure& failure) {
  const std::string who =
      failure.global_rank < 0 ? "the launcher's store" : cat("rank ", failure.global_rank);
  std::fprintf(stderr, "braid: rank %lld ends because %s failed; it was at: %s\n",
               static_cast<long long>(membership_.global_rank), who.c_str(), board_.text().c_str());
  std::fflush(nullptr);
  (void)store_->set(cat(kEndedKey, membership_.global_rank), "1");
  ::_exit(1);
}

}  // namespace braid::inline comm

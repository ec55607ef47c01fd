#include "comm/store_silence.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "comm/watchdog.h"

namespace braid::inline comm {

StoreSilence::StoreSilence(SilenceOptions options, std::function<void(const std::string&)> give_up)
    : options_(std::move(options)), give_up_(std::move(give_up)), thread_([this] { run(); }) {}

StoreSilence::~StoreSilence() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void StoreSilence::set_process(const std::string& identity) {
  const std::lock_guard lock(mutex_);
  process_ = identity;
}

void StoreSilence::begin() {
  const std::lock_guard lock(mutex_);
  asking_ = true;
  silent_s_ = 0;
}

void StoreSilence::end() {
  const std::lock_guard lock(mutex_);
  asking_ = false;
  if (std::exchange(named_, false))
    log_info(cat(options_.server, " answers again after ", format_seconds(silent_s_)));
}

// A process that was stopped itself has heard nothing meanwhile: of a long time between two looks
// two intervals count.
void StoreSilence::run() {
  using Clock = std::chrono::steady_clock;
  auto last = Clock::now();
  for (std::unique_lock lock(mutex_); !stop_;) {
    wake_.wait_for(lock, std::chrono::duration<double>(options_.interval_s));
    const double passed_s = std::chrono::duration<double>(Clock::now() - last).count();
    last = Clock::now();
    if (stop_ || !asking_) continue;
    silent_s_ += std::min(passed_s, 2 * options_.interval_s);
    judge(silent_s_);
  }
}

void StoreSilence::judge(double silent_s) {
  const ProcessState state = process_.empty() ? ProcessState::kElsewhere : process_state(process_);
  const bool stopped = state == ProcessState::kStopped;
  const std::string how = stopped ? " (it is stopped: SIGSTOP)" : "";
  if (silent_s > (stopped ? options_.stopped_s : options_.lost_s))
    return give_up_(cat("it serves the store of the job and has not answered for ",
                        format_seconds(silent_s), how));
  if (silent_s <= options_.quiet_s || named_) return;
  named_ = true;
  log_warning(cat(options_.server, ", which serves the store of the job, has not answered for ",
                  format_seconds(silent_s), how));
}

}  // namespace braid::inline comm

#include "comm/message_thread.h"

#include <ATen/core/grad_mode.h>

#include <chrono>
#include <utility>

#include "base/text.h"
#include "comm/position.h"
#include "comm/started_work.h"
#include "comm/store_handle.h"

namespace braid::inline comm {
namespace {

constexpr std::chrono::hours kNoDeadline{24 * 365};

}  // namespace

MessageThread::MessageThread(Work work) : thread_([this, work = std::move(work)] { run(work); }) {}

MessageThread::~MessageThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (waits_for_ != nullptr) waits_for_->work->abort();
  }
  thread_.join();
}

void MessageThread::run(const Work& work) {
  const at::NoGradGuard no_grad;
  const OwnTransfers own(&begun_);
  Status status;
  std::exception_ptr thrown;
  try {
    status = work(*this);
  } catch (...) {
    thrown = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  status_ = std::move(status), thrown_ = thrown;
  done_ = true;
  changed_.notify_all();
}

void MessageThread::now_waits_for(StartedWork* message) {
  const std::lock_guard lock(mutex_);
  waits_for_ = message;
  ++turn_;
  changed_.notify_all();
}

Status MessageThread::wait(Pending& pending) {
  if (pending.work_ == nullptr || pending.work_->followed || !pending.work_->failed.ok())
    return pending.wait();  // takes no time
  const std::unique_ptr<StartedWork> message = std::move(pending.work_);
  const auto waited = [&]() -> Status {
    try {
      now_waits_for(message.get());
      {
        const std::lock_guard lock(mutex_);
        if (ends_) return {Code::kUnavailable, "the rank goes on without it"};
      }
      const bool came = message->work->wait(kNoDeadline);
      now_waits_for(nullptr);
      if (!came) return transfer_failure(*message, "aborted", false);
      message->passage.arrive();
      return {};
    } catch (const std::exception& error) {
      return transfer_failure(*message, short_message(error), false);
    }
  };
  Status out = waited();
  now_waits_for(nullptr);  // also where it failed: the owner looks at it no more
  return out;
}

// The board tells of each message that the thread waits for in turn.
Status MessageThread::finish() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const int64_t turn = turn_;
    const auto goes_on = [&] { return done_ || turn_ != turn; };
    if (waits_for_ == nullptr) {
      changed_.wait(lock, goes_on);
      continue;
    }
    const StartedWork& message = *waits_for_;
    const double deadline_s = message.context.deadline_s;
    const std::string what = operation_text(message);
    const std::shared_ptr<const TransferPeers> with = message.with;
    const PositionBoard::Waiting waiting(*message.context.board, what, with->ranks);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline_s), goes_on))
      return transfer_failure(message, "", true);
  }
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  return status_;
}

}  // namespace braid::inline comm

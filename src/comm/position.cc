#include "comm/position.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "host/file.h"
#include "host/process.h"
#include "host/progress.h"

namespace braid::inline comm {

// Two texts that take turns: the one of the newest version is complete whenever its writer dies.
struct SharedPosition {
  std::atomic<uint32_t> version;
  std::array<std::array<char, 1024>, 2> texts;
};

namespace {

constexpr const char* kPositionName = "braid-position";
constexpr int kMostReads = 1000;  // of a board that changes all the time
constexpr double kTold_s = 1;     // a transfer of a device is told as a wait from this age on

SharedPosition* map_position(int file, int protection) {
  void* const memory = ::mmap(nullptr, sizeof(SharedPosition), protection, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<SharedPosition*>(memory);
}

}  // namespace

static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share it");

PositionBoard::PositionBoard() {
  file_ = ::memfd_create(kPositionName, MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, sizeof(SharedPosition)) != 0) return;
  shared_ = map_position(file_, PROT_READ | PROT_WRITE);
  publish();
}

PositionBoard::~PositionBoard() {
  if (shared_ != nullptr) ::munmap(shared_, sizeof(SharedPosition));
  if (file_ >= 0) ::close(file_);
}

void PositionBoard::enter(const std::string& phase, const std::string& instruction) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  instruction_ = instruction;
  publish();
}

void PositionBoard::proceed(const std::string& instruction) {
  const std::lock_guard lock(mutex_);
  instruction_ = instruction;
  publish();
}

std::string PositionBoard::text() const {
  const std::lock_guard lock(mutex_);
  return text_locked();
}

std::string PositionBoard::text_locked() const {
  std::string out = phase_;
  if (!instruction_.empty()) out += cat(", ", instruction_);
  if (!waits_.empty()) return cat(out, ", waiting: ", waits_.back()->what_);
  if (followed_s() > kTold_s) out += cat(", waiting: ", followed_.front().what);
  return out;
}

// A device makes them one after the other, about: the oldest one had its turn when the one before
// it ended.
double PositionBoard::followed_s() const {
  if (followed_.empty()) return 0;
  const auto begin = std::max(followed_.front().begin, last_ended_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void PositionBoard::follow(DeviceTransfer transfer) {
  const std::lock_guard lock(mutex_);
  // Those that ended hold tensors. A failure stays in front for settle().
  (void)forget_ended();
  followed_.push_back(std::move(transfer));
}

Status PositionBoard::settle() {
  const std::lock_guard lock(mutex_);
  const Status status = forget_ended();
  // Also behind one that takes long.
  std::erase_if(followed_, [](const DeviceTransfer& each) {
    const std::optional<Status> ended = each.ended();
    return ended && ended->ok();
  });
  if (followed_s() > kTold_s) publish();
  return status;
}

Status PositionBoard::forget_ended() {
  while (!followed_.empty()) {
    const DeviceTransfer& oldest = followed_.front();
    const std::optional<Status> ended = oldest.ended();
    if (!ended) break;
    if (!ended->ok()) return {ended->code(), cat(oldest.what, ": ", ended->message())};
    followed_.pop_front();
    last_ended_ = std::chrono::steady_clock::now();
    note_progress();
  }
  if (!followed_.empty() && followed_s() > followed_.front().deadline_s)
    return {Code::kDeadline, cat(followed_.front().what, ": not done within ",
                                 followed_.front().deadline_s, " s (runtime.wait_s)")};
  return {};
}

void PositionBoard::publish() {
  if (shared_ == nullptr) return;
  const std::string text = text_locked();
  const uint32_t next = shared_->version.load(std::memory_order_relaxed) + 1;
  auto& room = shared_->texts[next % 2];
  const size_t size = std::min(text.size(), room.size() - 1);
  std::memcpy(room.data(), text.data(), size);
  room[size] = 0;
  shared_->version.store(next, std::memory_order_release);
}

std::optional<RankWait> PositionBoard::waiting(double peers_after_s) const {
  const std::lock_guard lock(mutex_);
  const bool follows = waits_.empty() && followed_s() > kTold_s;
  if (waits_.empty() && !follows) return std::nullopt;
  RankWait out{{}, followed_s()};
  if (!follows) {
    const auto age = std::chrono::steady_clock::now() - waits_.back()->begin_;
    out.seconds = std::chrono::duration<double>(age).count();
  }
  if (out.seconds >= peers_after_s)
    out.peers = follows ? *followed_.front().peers : waits_.back()->peers_;
  return out;
}

PositionBoard::Waiting::Waiting(PositionBoard& board, std::string what,
                                const std::vector<int64_t>& peers)
    : board_(board),
      what_(std::move(what)),
      peers_(peers),
      begin_(std::chrono::steady_clock::now()) {
  note_progress();
  const std::lock_guard lock(board_.mutex_);
  board_.waits_.push_back(this);
  board_.publish();
}

PositionBoard::Waiting::~Waiting() {
  note_progress();
  const std::lock_guard lock(board_.mutex_);
  std::erase(board_.waits_, this);
  board_.publish();
}

// The file has no name in the file system; the links of a process's descriptors name it.
std::optional<PositionView> PositionView::open(pid_t pid) {
  const std::string folder = cat("/proc/", pid, "/fd");
  const auto names = list_folder(folder);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    const std::string path = join_path(folder, (*names)[i]);
    std::array<char, 64> target{};
    const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
    const std::string_view link(target.data(), std::max<ssize_t>(size, 0));
    if (link.find(cat("memfd:", kPositionName)) == std::string_view::npos) continue;
    const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open() || ::lseek(file.get(), 0, SEEK_END) < off_t{sizeof(SharedPosition)})
      continue;
    const SharedPosition* const shared = map_position(file.get(), PROT_READ);
    if (shared != nullptr) return PositionView(shared);
  }
  return std::nullopt;
}

PositionView::PositionView(PositionView&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)) {}

PositionView& PositionView::operator=(PositionView&& other) noexcept {
  std::swap(shared_, other.shared_);
  return *this;
}

PositionView::~PositionView() {
  if (shared_ != nullptr) ::munmap(const_cast<SharedPosition*>(shared_), sizeof(SharedPosition));
}

std::string PositionView::text() const {
  auto text = shared_->texts[0];
  for (int i = 0; i < kMostReads; ++i) {
    const uint32_t version = shared_->version.load(std::memory_order_acquire);
    std::memcpy(text.data(), shared_->texts[version % 2].data(), text.size());
    std::atomic_thread_fence(std::memory_order_acquire);
    if (shared_->version.load(std::memory_order_relaxed) == version) break;
  }
  return {text.data(), ::strnlen(text.data(), text.size())};
}

}  // namespace braid::inline comm

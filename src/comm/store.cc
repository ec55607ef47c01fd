#include "comm/store.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/log.h"
#include "base/text.h"
#include "comm/sockets.h"
#include "comm/store_handle.h"
#include "comm/watchdog.h"
#include "host/process.h"

namespace braid::inline comm {
namespace {

constexpr double kRequestTimeout_s = 60;  // of a request that the server answers at once
constexpr double kAttempt_s = 5;          // to reach the server, one of several

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

Status unavailable(const std::string& message) { return {Code::kUnavailable, message}; }

// Whether any program listens there.
bool somebody_listens(const Membership& membership) {
  const auto found = addresses_of(membership.master_host, membership.master_port);
  if (!found.ok()) return false;
  const FileHandle socket = socket_of(**found);
  return socket.is_open() && ::connect(socket.get(), (*found)->ai_addr, (*found)->ai_addrlen) == 0;
}

// Says something in the log unless it ends within so many seconds.
class LateNotice {
 public:
  LateNotice(double seconds, std::function<std::string()> text)
      : thread_([this, seconds, text = std::move(text)] {
          std::unique_lock lock(mutex_);
          const auto time = std::chrono::duration<double>(seconds);
          if (!wake_.wait_for(lock, time, [this] { return ended_; })) log_warning(text());
        }) {}
  ~LateNotice() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  LateNotice(const LateNotice&) = delete;
  LateNotice& operator=(const LateNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;  // the last member: it uses the others
};

// c10d reports each failure in its own log too, with stacks of calls; Braid's message is enough.
void quiet_c10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = 3;
}

// Runs a call of c10d and turns what it throws into a status.
template <typename Call>
Status guarded(Code code, const std::string& what, const Call& call) {
  try {
    call();
    return {};
  } catch (const std::exception& error) {
    return {code, cat(what, ": ", short_message(error))};
  }
}

c10::intrusive_ptr<c10d::Store> with_prefix(const std::string& attempt,
                                            c10::intrusive_ptr<c10d::Store> store) {
  return c10::make_intrusive<c10d::PrefixStore>(cat("braid-", attempt), std::move(store));
}

}  // namespace

std::string short_message(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return first_line(torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
}

Store::Store(std::unique_ptr<Handle> handle, int64_t port)
    : handle_(std::move(handle)), port_(port) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::attempt(const Membership& membership, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.timeout = milliseconds(timeout_s);
  options.waitWorkers = false;
  options.port = static_cast<uint16_t>(membership.master_port);
  auto handle = std::make_unique<Handle>();
  BRAID_TRY(guarded(Code::kUnavailable, store_place(membership), [&] {
    handle->store = with_prefix(
        membership.attempt, c10::make_intrusive<c10d::TCPStore>(membership.master_host, options));
    handle->store->setTimeout(milliseconds(kRequestTimeout_s));
  }));
  return std::unique_ptr<Store>(new Store(std::move(handle), membership.master_port));
}

// c10d waits without end for a program that listens and says nothing; its thread is left to that
// then.
Result<std::unique_ptr<Store>> Store::connect(const Membership& membership, double timeout_s) {
  quiet_c10d();
  const Deadline deadline = deadline_in(timeout_s);
  const double attempt_s = std::min(timeout_s, kAttempt_s);  // c10d tries longer than it is told to
  while (true) {
    using Promise = std::promise<Result<std::unique_ptr<Store>>>;
    const auto promise = std::make_shared<Promise>();
    auto ended = promise->get_future();
    std::thread([=] { promise->set_value(attempt(membership, attempt_s)); }).detach();
    if (ended.wait_until(deadline) != std::future_status::ready)
      return unavailable(cat("whoever listens at ", store_place(membership), " says nothing"));
    auto store = ended.get();
    if (store.ok() || std::chrono::steady_clock::now() > deadline) return store;
  }
}

// Why rank 0 cannot serve the store, and what to do.
std::string Store::port_remedy(const Membership& membership, int error) {
  if (error != EADDRINUSE) return "; rank 0 must run on the machine of MASTER_ADDR";
  if (const auto there = connect(membership, kAttempt_s); there.ok())
    if (const auto seen = (*there)->look({process_key(0)}); seen.ok() && (*seen)[0])
      return cat("; rank 0 is there twice: ", process_text(*(*seen)[0]),
                 " serves it already; give each process a RANK of its own, and each job a "
                 "MASTER_PORT of its own");
  return "; another program has the port: choose another MASTER_PORT";
}

Result<std::unique_ptr<Store>> Store::open(const Membership& membership, double timeout_s,
                                           double notice_s) {
  const bool serves = membership.global_rank == 0 && !membership.store_exists;
  if (serves) {
    BRAID_ASSIGN(Listener listener,
                 listen_on(membership.master_host, membership.master_port, "cannot serve the store",
                           [&](int error) { return port_remedy(membership, error); }));
    return serve(std::move(listener.socket), membership);
  }
  const std::string where = store_place(membership);
  const LateNotice notice(notice_s, [&] {
    return cat("rank ", membership.global_rank, " waits for rank 0 at ", where,
               somebody_listens(membership)
                   ? ", where a program listens that serves no ranks: has it taken the port?"
                   : ", where nobody listens yet");
  });
  auto store = connect(membership, timeout_s);
  if (store.ok()) return store;
  return Status(Code::kUnavailable,
                cat("rank ", membership.global_rank, " found no store at ", where, " within ",
                    timeout_s, " s (MASTER_ADDR and MASTER_PORT must name the machine of rank 0): ",
                    store.status().message()));
}

Result<std::unique_ptr<Store>> Store::serve(FileHandle socket, const Membership& membership) {
  quiet_c10d();
  c10d::TCPStoreOptions options;
  options.timeout = milliseconds(kRequestTimeout_s);
  options.waitWorkers = false;
  options.isServer = true;
  options.port = static_cast<uint16_t>(membership.master_port);
  options.masterListenFd = ::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0);
  auto handle = std::make_unique<Handle>();
  BRAID_TRY(guarded(Code::kUnavailable, cat("the store at ", store_place(membership)), [&] {
    handle->store = with_prefix(
        membership.attempt, c10::make_intrusive<c10d::TCPStore>(membership.master_host, options));
    handle->store->setTimeout(milliseconds(kRequestTimeout_s));
  }));
  return std::unique_ptr<Store>(new Store(std::move(handle), membership.master_port));
}

Result<std::unique_ptr<Store>> Store::serve_local(const std::string& attempt) {
  Membership local;
  local.attempt = attempt;
  BRAID_ASSIGN(Listener listener, listen_on(local.master_host, 0, "cannot serve the store",
                                            [](int) { return std::string(); }));
  local.master_port = listener.port;
  return serve(std::move(listener.socket), local);
}

Result<std::unique_ptr<Store>> Store::duplicate() const {
  auto handle = std::make_unique<Handle>();
  BRAID_TRY(guarded(Code::kUnavailable, "another connection to the store",
                    [&] { handle->store = handle_->store->clone(); }));
  return std::unique_ptr<Store>(new Store(std::move(handle), port_));
}

Status Store::set(const std::string& key, const std::string& value) {
  ++requests_;
  return guarded(Code::kUnavailable, cat("store, setting ", key),
                 [&] { handle_->store->set(key, value); });
}

Result<std::string> Store::wait(const std::string& key, double timeout_s) {
  std::string value;
  requests_ += 2;
  BRAID_TRY(guarded(Code::kDeadline, cat("store, ", key, " within ", timeout_s, " s"), [&] {
    handle_->store->wait({key}, milliseconds(timeout_s));
    value = handle_->store->get_to_str(key);
  }));
  return value;
}

Result<std::vector<std::string>> Store::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  ++requests_;
  BRAID_TRY(guarded(Code::kUnavailable, "store", [&] {
    for (const std::vector<uint8_t>& value : handle_->store->multiGet(keys))
      out.emplace_back(value.begin(), value.end());
  }));
  return out;
}

// Where all are there, two requests tell it; else one for each key that may be absent, since a
// request for values waits for those that are.
Result<std::vector<std::optional<std::string>>> Store::look(const std::vector<std::string>& keys) {
  std::vector<std::optional<std::string>> out(keys.size());
  if (keys.empty()) return out;
  std::vector<size_t> there(keys.size());
  std::iota(there.begin(), there.end(), size_t{0});
  const auto lacks = [&](const std::vector<std::string>& some) {
    ++requests_;
    return !handle_->store->check(some);
  };
  BRAID_TRY(guarded(Code::kUnavailable, "store", [&] {
    if (!lacks(keys)) return;
    if (keys.size() == 1) return there.clear();
    std::erase_if(there, [&](size_t i) { return lacks({keys[i]}); });
  }));
  if (there.empty()) return out;
  std::vector<std::string> wanted;
  for (const size_t i : there) wanted.push_back(keys[i]);
  BRAID_ASSIGN(std::vector<std::string> values, get_all(wanted));
  for (size_t i = 0; i < there.size(); ++i) out[there[i]] = std::move(values[i]);
  return out;
}

Result<std::string> Store::set_once(const std::string& key, const std::string& value) {
  std::string now;
  ++requests_;
  // With an expected value that nobody writes, only an absent key is set.
  BRAID_TRY(guarded(Code::kUnavailable, cat("store, setting ", key), [&] {
    const std::string expected;
    now = handle_->store->compareSet(key, expected, value);
  }));
  return now;
}

Result<int64_t> Store::add(const std::string& key, int64_t value) {
  int64_t sum = 0;
  ++requests_;
  BRAID_TRY(guarded(Code::kUnavailable, cat("store, adding to ", key),
                    [&] { sum = handle_->store->add(key, value); }));
  return sum;
}

}  // namespace braid::inline comm

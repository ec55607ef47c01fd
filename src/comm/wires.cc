#include "comm/wires.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "comm/name_hash.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

// Longer messages ask for room first: what came early takes memory that nobody has counted.
constexpr size_t kMostEarlyBytes = 16 << 10;
constexpr size_t kBytesOfATurn = 4 << 20;  // that one connection may bring before the others

std::string rank_name(int64_t rank) { return cat("rank ", rank); }

std::string address_key(int64_t rank) { return cat("wire/", rank); }

char* bytes_of(const WireMessage& message) { return static_cast<char*>(message.data.data_ptr()); }
size_t size_of(const WireMessage& message) { return message.data.nbytes(); }

// The address that other ranks reach this one at. The variable is PyTorch's, as in gloo_backend.cc.
Result<std::string> own_address(const Membership& membership) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return own_address_of(interface);
  if (membership.one_machine()) return std::string("127.0.0.1");
  return own_address_towards(membership.master_host, membership.master_port);
}

void prepare(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

}  // namespace

// What every message begins with; ranks of a job are programs of one kind of processor.
struct Wires::Frame {
  enum Kind : uint32_t { kHello, kMessage, kAsk, kGrant, kAsked };
  Kind kind = kHello;
  int32_t tag = 0;
  uint64_t group = 0;   // of a hello: the job
  uint64_t number = 0;  // of a hello: the rank
  uint64_t bytes = 0;
};

// A message that nobody waits for yet: itself, or that it asks for room.
struct Wires::Early {
  std::vector<char> bytes;
  bool asks = false;
  uint64_t number = 0, asked_bytes = 0;
};

struct Wires::Outgoing {
  Frame frame;
  WireHandle message;  // whose bytes follow the frame; null: none
  size_t written = 0;
};

struct Wires::Connection {
  FileHandle socket;
  int64_t peer = -1;  // until it has said who it is
  bool connecting = false;
  // What is being read.
  Frame frame;
  size_t frame_read = 0;
  WireHandle room;  // for the bytes behind the frame; null: they are early
  Early early;
  char* at = nullptr;
  size_t left = 0;
  std::deque<Outgoing> queue;
};

Result<std::unique_ptr<Wires>> Wires::open(Store& store, const Membership& membership) {
  BRAID_ASSIGN(const std::string host, own_address(membership));
  BRAID_ASSIGN(Listener listener, listen_on(host, 0, "cannot listen for other ranks", [](int) {
                 return std::string("; GLOO_SOCKET_IFNAME chooses another interface");
               }));
  BRAID_TRY(store.set(address_key(membership.global_rank), cat(host, " ", listener.port)));
  std::unique_ptr<Wires> out(new Wires(std::move(listener), membership));
  out->begin();
  return out;
}

Status Wires::meet(Store& store) {
  std::vector<std::string> keys;
  for (int64_t rank = 0; rank < membership_.world_size; ++rank) keys.push_back(address_key(rank));
  BRAID_ASSIGN(addresses_, store.get_all(keys));
  return ok_status();
}

Wires::Wires(Listener listener, const Membership& membership)
    : membership_(membership),
      job_(name_hash(cat(membership.master_port, " ", membership.attempt))),
      listener_(std::move(listener.socket)),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Wires::begin() {
  prepare(listener_.get());
  for (const int socket : {listener_.get(), wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket;
    ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket, &event);
  }
  thread_ = std::thread([this] { run(); });
}

Wires::~Wires() { close(); }

void Wires::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (const auto& [peer, connection] : wires_) fail_all_of(peer, "this rank has ended");
    while (!awaited_.empty()) fail_all_of(awaited_.begin()->first.peer, "this rank has ended");
  }
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
  const std::lock_guard lock(mutex_);
  wires_.clear();
  connections_.clear();
}

int64_t Wires::peers() const {
  const std::lock_guard lock(mutex_);
  std::set<int64_t> known;
  for (const auto& [socket, connection] : connections_)
    if (connection->peer >= 0) known.insert(connection->peer);
  return std::ssize(known);
}

// --- sending ---

WireHandle Wires::send(const WireEnd& to, at::Tensor data) {
  const auto message = std::make_shared<WireMessage>(WireMessage{std::move(data), to, false, ""});
  const std::lock_guard lock(mutex_);
  const auto lost = lost_.find(to.peer);
  const bool gone = lost != lost_.end() || closed_;
  const Status reached = gone || wires_.count(to.peer) != 0 ? ok_status() : connect(to.peer);
  if (gone || !reached.ok()) {
    fail(*message, closed_ ? "this rank has ended" : gone ? lost->second : reached.message());
  } else if (size_of(*message) <= kMostEarlyBytes) {
    push(to.peer, {{Frame::kMessage, to.tag, to.group, 0, size_of(*message)}, message});
  } else {
    asking_for_room_[++numbers_] = message;
    push(to.peer, {{Frame::kAsk, to.tag, to.group, numbers_, size_of(*message)}, nullptr});
  }
  return message;
}

Status Wires::connect(int64_t peer) {
  const std::vector<std::string> parts = split(addresses_.at(peer), ' ');
  int64_t port = 0;
  BRAID_CHECK(parts.size() == 2 && parse_int(parts[1], &port), "the address of a rank");
  BRAID_ASSIGN(const Addresses found, addresses_of(parts[0], port));
  FileHandle socket = socket_of(*found);
  const auto failed = [&] {
    return Status{Code::kUnavailable, cat("connecting to rank ", peer, " at ", parts[0], ":", port,
                                          ": ", std::strerror(errno))};
  };
  if (!socket.is_open()) return failed();
  prepare(socket.get());
  const int begun = ::connect(socket.get(), found->ai_addr, found->ai_addrlen);
  if (begun != 0 && errno != EINPROGRESS) return failed();
  Connection& wire = add(std::move(socket), peer);
  wire.connecting = begun != 0;
  wires_[peer] = &wire;
  const auto self = static_cast<uint64_t>(membership_.global_rank);
  push(peer, {{Frame::kHello, 0, job_, self, 0}, nullptr});
  return ok_status();
}

Wires::Connection& Wires::add(FileHandle socket, int64_t peer) {
  auto connection = std::make_unique<Connection>();
  const int number = socket.get();
  connection->socket = std::move(socket);
  connection->peer = peer;
  epoll_event event{};
  event.events = peer >= 0 ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.fd = number;
  ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, number, &event);
  return *(connections_[number] = std::move(connection));
}

void Wires::push(int64_t peer, Outgoing outgoing) {
  Connection& wire = *wires_.at(peer);
  wire.queue.push_back(std::move(outgoing));
  // A broken one is found by the thread that reads, which says why.
  if (!wire.connecting && wire.queue.size() == 1) (void)flush(wire);
}

bool Wires::flush(Connection& to) {
  while (!to.queue.empty()) {
    Outgoing& out = to.queue.front();
    const size_t payload = out.message == nullptr ? 0 : size_of(*out.message);
    const size_t ahead = std::min(out.written, sizeof(Frame));
    std::array<iovec, 2> parts{};
    parts[0] = {reinterpret_cast<char*>(&out.frame) + ahead, sizeof(Frame) - ahead};
    if (payload > 0) {
      const size_t behind = out.written - ahead;
      parts[1] = {bytes_of(*out.message) + behind, payload - behind};
    }
    msghdr header{};
    header.msg_iov = parts.data(), header.msg_iovlen = payload > 0 ? 2 : 1;
    const ssize_t sent = ::sendmsg(to.socket.get(), &header, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      const int error = errno;
      watch(to);
      errno = error;
      return error == EAGAIN || error == EWOULDBLOCK;
    }
    out.written += static_cast<size_t>(sent);
    if (out.written < sizeof(Frame) + payload) continue;
    if (out.message != nullptr) finish(*out.message);
    to.queue.pop_front();
  }
  watch(to);
  return true;
}

// What the thread is told of.
void Wires::watch(Connection& connection) {
  epoll_event event{};
  event.events = connection.queue.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  event.data.fd = connection.socket.get();
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

// --- receiving ---

WireHandle Wires::receive(const WireEnd& from, at::Tensor room) {
  const auto message = std::make_shared<WireMessage>(WireMessage{std::move(room), from, false, ""});
  const std::lock_guard lock(mutex_);
  if (const auto found = early_.find(from); found != early_.end()) {
    Early early = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) early_.erase(found);
    give(message, from, std::move(early));
  } else if (const auto lost = lost_.find(from.peer); lost != lost_.end() || closed_) {
    fail(*message, closed_ ? "this rank has ended" : lost->second);
  } else {
    awaited_[from].push_back(message);
  }
  return message;
}

// What came early to who waits for it now.
void Wires::give(const WireHandle& room, const WireEnd& from, Early early) {
  const uint64_t bytes = early.asks ? early.asked_bytes : early.bytes.size();
  if (bytes != size_of(*room)) {
    fail(*room, cat(rank_name(from.peer), " sent ", bytes, " bytes, expected ", size_of(*room)));
  } else if (early.asks) {
    grant(room, from.peer, early.number);
  } else {
    std::memcpy(bytes_of(*room), early.bytes.data(), bytes);
    finish(*room);
  }
}

void Wires::grant(const WireHandle& room, int64_t peer, uint64_t number) {
  if (const auto lost = lost_.find(peer); lost != lost_.end()) return fail(*room, lost->second);
  rooms_[{peer, number}] = room;
  push(peer, {{Frame::kGrant, 0, 0, number, 0}, nullptr});
}

bool Wires::read(Connection& from) {
  for (size_t turn = 0; turn < kBytesOfATurn;) {
    const bool in_frame = from.frame_read < sizeof(Frame);
    char* const to = in_frame ? reinterpret_cast<char*>(&from.frame) + from.frame_read : from.at;
    const size_t want = in_frame ? sizeof(Frame) - from.frame_read : from.left;
    const ssize_t got = want == 0 ? 0 : ::recv(from.socket.get(), to, want, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0 && want > 0) return false;
    turn += static_cast<size_t>(got);
    if (in_frame) {
      from.frame_read += static_cast<size_t>(got);
      if (from.frame_read == sizeof(Frame) && !begin_frame(from)) return false;
    } else {
      from.at += got, from.left -= static_cast<size_t>(got);
    }
    if (from.frame_read == sizeof(Frame) && from.left == 0) end_frame(from);
  }
  return true;
}

// Looks at a frame that is whole, and finds room for the bytes behind it.
bool Wires::begin_frame(Connection& from) {
  if ((from.peer < 0) != (from.frame.kind == Frame::kHello)) return false;
  switch (from.frame.kind) {
    case Frame::kHello:
      return greeted(from);
    case Frame::kMessage:
      return begin_message(from);
    case Frame::kAsk:
      asked(from);
      return true;
    case Frame::kGrant:
      return granted(from);
    case Frame::kAsked: {
      const auto found = rooms_.find({from.peer, from.frame.number});
      if (found == rooms_.end() || size_of(*found->second) != from.frame.bytes) return false;
      from.room = std::move(found->second);
      rooms_.erase(found);
      from.at = bytes_of(*from.room), from.left = from.frame.bytes;
      return true;
    }
  }
  return false;
}

// Who is not of this job is not heard.
bool Wires::greeted(Connection& by) {
  const auto rank = static_cast<int64_t>(by.frame.number);
  if (by.frame.group != job_ || rank < 0 || rank >= membership_.world_size) return false;
  by.peer = rank;
  wires_.try_emplace(rank, &by);  // two that greet each other at once keep both
  return true;
}

bool Wires::begin_message(Connection& from) {
  if (from.frame.bytes > kMostEarlyBytes) return false;
  from.left = from.frame.bytes;
  const WireEnd end{from.peer, from.frame.group, from.frame.tag};
  const auto found = awaited_.find(end);
  if (found != awaited_.end()) {
    from.room = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) awaited_.erase(found);
    if (size_of(*from.room) == from.frame.bytes) {
      from.at = bytes_of(*from.room);
      return true;
    }
    fail(*from.room, cat(rank_name(from.peer), " sent ", from.frame.bytes, " bytes, expected ",
                         size_of(*from.room)));
  }
  from.early.bytes.resize(from.frame.bytes);
  from.at = from.early.bytes.data();
  return true;
}

void Wires::asked(const Connection& by) {
  const WireEnd end{by.peer, by.frame.group, by.frame.tag};
  Early early{{}, true, by.frame.number, by.frame.bytes};
  const auto found = awaited_.find(end);
  if (found == awaited_.end()) {
    early_[end].push_back(std::move(early));
    return;
  }
  const WireHandle room = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) awaited_.erase(found);
  give(room, end, std::move(early));
}

bool Wires::granted(const Connection& by) {
  const auto found = asking_for_room_.find(by.frame.number);
  if (found == asking_for_room_.end()) return false;
  const WireHandle message = std::move(found->second);
  asking_for_room_.erase(found);
  push(by.peer, {{Frame::kAsked, 0, 0, by.frame.number, size_of(*message)}, message});
  return true;
}

void Wires::end_frame(Connection& from) {
  if (from.room != nullptr) {
    if (from.room->failure.empty()) finish(*from.room);
  } else if (from.frame.kind == Frame::kMessage) {
    // Somebody may have come to wait for it while it was read.
    const WireEnd end{from.peer, from.frame.group, from.frame.tag};
    if (const auto found = awaited_.find(end); found != awaited_.end()) {
      const WireHandle room = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) awaited_.erase(found);
      give(room, end, std::move(from.early));
    } else {
      early_[end].push_back(std::move(from.early));
    }
  }
  from.room = nullptr, from.early = {};
  from.frame_read = 0, from.at = nullptr, from.left = 0;
}

// --- ends ---

Status Wires::wait(const WireHandle& message, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return message->done || !message->failure.empty(); };
  if (!changed_.wait_until(lock, deadline, over))
    return {Code::kDeadline, cat(rank_name(message->end.peer), " does not answer")};
  return message->done ? ok_status() : Status{Code::kUnavailable, message->failure};
}

bool Wires::is_done(const WireHandle& message) const {
  const std::lock_guard lock(mutex_);
  return message->done || !message->failure.empty();
}

void Wires::finish(WireMessage& message) {
  message.done = true;
  changed_.notify_all();
}

void Wires::fail(WireMessage& message, const std::string& reason) {
  if (!message.done) message.failure = reason;
  changed_.notify_all();
}

void Wires::fail_all_of(int64_t peer, const std::string& reason) {
  for (auto at = awaited_.lower_bound({peer, 0, INT32_MIN});
       at != awaited_.end() && at->first.peer == peer; at = awaited_.erase(at))
    for (const WireHandle& message : at->second) fail(*message, reason);
  std::erase_if(rooms_, [&](const auto& entry) {
    if (entry.first.first != peer) return false;
    fail(*entry.second, reason);
    return true;
  });
  std::erase_if(asking_for_room_, [&](const auto& entry) {
    if (entry.second->end.peer != peer) return false;
    fail(*entry.second, reason);
    return true;
  });
  for (const auto& [socket, connection] : connections_) {
    if (connection->peer != peer) continue;
    if (connection->room != nullptr) fail(*connection->room, reason);
    for (const Outgoing& out : connection->queue)
      if (out.message != nullptr) fail(*out.message, reason);
  }
}

void Wires::lose(int socket, const std::string& reason) {
  const int64_t peer = connections_.at(socket)->peer;
  if (peer >= 0) {
    lost_.emplace(peer, reason);
    fail_all_of(peer, reason);
    wires_.erase(peer);
  }
  connections_.erase(socket);
}

// --- the thread ---

void Wires::run() {
  work_beside();
  std::array<epoll_event, 64> events{};
  while (true) {
    const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), -1);
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == listener_.get()) {
        accept_all();
      } else {
        serve(events[i].data.fd, events[i].events);
      }
    }
  }
}

void Wires::accept_all() {
  while (true) {
    FileHandle socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open()) return;
    prepare(socket.get());
    add(std::move(socket), -1);
  }
}

// Whether a connection that was begun has been made.
bool Wires::connected(Connection& connection) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(connection.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  connection.connecting = false;
  return error == 0;
}

void Wires::serve(int socket, uint32_t events) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const std::string peer = rank_name(connection.peer);
  if (connection.connecting && !connected(connection))
    return lose(socket, cat(peer, " cannot be reached: ", std::strerror(errno)));
  if ((events & EPOLLOUT) != 0 && !flush(connection))
    return lose(socket, cat(peer, " is gone: ", std::strerror(errno)));
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  errno = 0;
  if (!read(connection)) {
    const std::string why = errno == 0 ? std::string("has closed its connection")
                                       : cat("is gone: ", std::strerror(errno));
    lose(socket, cat(rank_name(connection.peer), " ", why));
  }
}

}  // namespace braid::inline comm

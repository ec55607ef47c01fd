// Reading and writing the connections of Wires.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "comm/wires_frames.h"
#include "host/progress.h"

namespace braid::inline comm {
namespace {

constexpr size_t kBytesOfATurn = 4 << 20;  // of one connection before the others
constexpr int kLookAgain_ms = 100;         // for a free file

bool somebody_waits(int listener) {
  pollfd look{listener, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

}  // namespace

void prepare_socket(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
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
  const auto found = wires_.find(peer);
  if (found == wires_.end()) return waiting_.at(peer).queue.push_back(std::move(outgoing));
  Connection& wire = *found->second;
  wire.queue.push_back(std::move(outgoing));
  // A broken one is found by the thread that reads, which says why.
  if (!wire.connecting && wire.queue.size() == 1) (void)flush(wire);
}

bool Wires::flush(Connection& to) {
  for (size_t turn = 0; !to.queue.empty() && turn < kBytesOfATurn;) {
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
    out.written += static_cast<size_t>(sent), turn += static_cast<size_t>(sent);
    if (out.written < sizeof(Frame) + payload) continue;
    if (out.message != nullptr) finish(*out.message);
    to.queue.pop_front();
  }
  watch(to);
  return true;
}

void Wires::watch_listener(bool on) {
  epoll_event event{};
  if (on) event.events = EPOLLIN;
  event.data.fd = listener_.get();
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

// What the thread is told of.
void Wires::watch(Connection& connection) {
  epoll_event event{};
  event.events = connection.queue.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  event.data.fd = connection.socket.get();
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

bool Wires::read(Connection& from) {
  for (size_t turn = 0; turn < kBytesOfATurn;) {
    const bool in_frame = from.frame_read < sizeof(Frame);
    char* const to = in_frame ? reinterpret_cast<char*>(&from.frame) + from.frame_read : from.at;
    const size_t want = in_frame ? sizeof(Frame) - from.frame_read : from.left;
    const ssize_t got = want == 0 ? 0 : ::recv(from.socket.get(), to, want, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0 && want > 0) return errno = 0, false;
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
  if (auto waited = waiting_.extract(rank); !waited.empty())
    for (Outgoing& out : waited.mapped().queue) push(rank, std::move(out));
  return true;
}

bool Wires::begin_message(Connection& from) {
  if (from.frame.bytes > kMostEarlyBytes) return false;
  from.left = from.frame.bytes;
  const WireEnd end{from.peer, from.frame.group, from.frame.tag};
  from.room = next_awaited(end);
  if (from.room != nullptr) {
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
  take_early(end, {{}, true, by.frame.number, by.frame.bytes});
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
    take_early({from.peer, from.frame.group, from.frame.tag}, std::move(from.early));
  }
  from.room = nullptr, from.early = {};
  from.frame_read = 0, from.at = nullptr, from.left = 0;
}

void Wires::run() {
  work_beside();
  std::array<epoll_event, 64> events{};
  bool lacks_files = false;
  while (true) {
    const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()),
                                   lacks_files ? kLookAgain_ms : -1);
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    if (full_until_) accept_all();
    try_waiting();
    for (int i = 0; i < count; ++i) {
      const int file = events[i].data.fd;
      if (file == listener_.get()) {
        accept_all();
      } else if (file == wake_.get()) {
        uint64_t calls = 0;
        (void)!::read(file, &calls, sizeof calls);
      } else {
        serve(file, events[i].events);
      }
    }
    lacks_files = full_until_ || !waiting_.empty();
  }
}

void Wires::accept_all() {
  while (true) {
    FileHandle socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open()) {
      const int error = errno;
      // The system asks for a free file before it looks whether anybody has come.
      return note_room(lacks_room(error) && !somebody_waits(listener_.get()) ? EAGAIN : error);
    }
    prepare_socket(socket.get());
    add(std::move(socket), -1);
  }
}

// Whoever has connected waits in the system while there is no room for another file. The listener
// is ready all that time, so it is not watched: the thread looks again once in a while.
void Wires::note_room(int error) {
  const bool full = lacks_room(error);
  if (full && full_until_) {
    if (std::chrono::steady_clock::now() > *full_until_) fail_unheard(socket_error_text(error));
    return;
  }
  if (full == full_until_.has_value()) return;
  watch_listener(!full);
  full_until_ = full ? std::optional(deadline_in(files_s_)) : std::nullopt;
  if (full)
    log_warning(cat(rank_name(membership_.global_rank), " cannot be reached by other ranks: ",
                    socket_error_text(error), "; it waits ", format_seconds(files_s_)));
}

// What is to be sent to whom this rank cannot connect, since it has no file for it, waits too.
void Wires::try_waiting() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const auto at = next++;
    const int64_t peer = at->first;
    const Result<int> begun = begin_wire(peer);
    const bool made = begun.ok() && *begun == 0;
    if (begun.ok() && !made && std::chrono::steady_clock::now() < at->second.until) continue;
    const Waiting over = std::move(at->second);
    waiting_.erase(at);
    for (const Outgoing& out : over.queue)
      if (made)
        push(peer, out);
      else if (out.message != nullptr)
        fail(*out.message, begun.ok() ? over.why : begun.status().message());
    if (!made) fail_asking(peer, begun.ok() ? over.why : begun.status().message());
  }
}

// Who is not connected cannot be heard: who waits for it learns why.
void Wires::fail_unheard(const std::string& reason) {
  std::set<int64_t> peers;
  for (const auto& [end, messages] : awaited_)
    if (wires_.count(end.peer) == 0) peers.insert(end.peer);
  for (const int64_t peer : peers)
    fail_all_of(peer, cat(rank_name(peer), " cannot be heard: ", reason));
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

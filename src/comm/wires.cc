#include "comm/wires.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "comm/name_hash.h"
#include "comm/wires_frames.h"

namespace braid::inline comm {
namespace {

std::string address_key(int64_t rank) { return cat("wire/", rank); }

// `address`: as in the store.
std::string connecting_text(int64_t peer, const std::string& address) {
  return cat("connecting to rank ", peer, " at ", join(split(address, ' '), ":"), ": ");
}

// The address that other ranks reach this one at. The variable is PyTorch's, as in gloo_backend.cc.
Result<std::string> own_address(const Membership& membership) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return own_address_of(interface);
  if (membership.one_machine()) return std::string("127.0.0.1");
  return own_address_towards(membership.master_host, membership.master_port);
}

}  // namespace

Result<std::unique_ptr<Wires>> Wires::open(Store& store, const Membership& membership,
                                           double files_s) {
  BRAID_ASSIGN(const std::string host, own_address(membership));
  BRAID_ASSIGN(Listener listener, listen_on(host, 0, "cannot listen for other ranks", [](int) {
                 return std::string("; GLOO_SOCKET_IFNAME chooses another interface");
               }));
  FileHandle poll(::epoll_create1(EPOLL_CLOEXEC));
  FileHandle wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poll.is_open() || !wake.is_open())
    return Status{Code::kUnavailable,
                  cat("cannot listen for other ranks: ", socket_error_text(errno))};
  BRAID_TRY(store.set(address_key(membership.global_rank), cat(host, " ", listener.port)));
  std::unique_ptr<Wires> out(new Wires(
      {std::move(listener.socket), std::move(poll), std::move(wake)}, membership, files_s));
  out->begin();
  return out;
}

void Wires::meet(std::shared_ptr<Store> store) {
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
}

Result<std::string> Wires::address_of(int64_t peer) {
  if (const auto known = addresses_.find(peer); known != addresses_.end()) return known->second;
  BRAID_CHECK(store_ != nullptr, "ranks meet before they send");
  BRAID_ASSIGN(const auto found, store_->get_all({address_key(peer)}));
  return addresses_[peer] = found.front();
}

Wires::Wires(Files files, const Membership& membership, double files_s)
    : membership_(membership),
      job_(name_hash(cat(membership.master_port, " ", membership.attempt))),
      files_s_(files_s),
      listener_(std::move(files.listener)),
      poll_(std::move(files.poll)),
      wake_(std::move(files.wake)) {}

void Wires::begin() {
  prepare_socket(listener_.get());
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
    while (!waiting_.empty()) fail_all_of(waiting_.begin()->first, "this rank has ended");
  }
  wake();
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

WireHandle Wires::send(const WireEnd& to, at::Tensor data) {
  const auto message = std::make_shared<WireMessage>(WireMessage{std::move(data), to, false, ""});
  const std::lock_guard lock(mutex_);
  const auto lost = lost_.find(to.peer);
  const bool gone = lost != lost_.end() || closed_;
  const bool known = wires_.count(to.peer) != 0 || waiting_.count(to.peer) != 0;
  const Status reached = gone || known ? ok_status() : connect(to.peer);
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

void Wires::wake() const {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

Status Wires::connect(int64_t peer) {
  BRAID_ASSIGN(const int full, begin_wire(peer));
  if (full == 0) return ok_status();
  BRAID_ASSIGN(const std::string address, address_of(peer));
  const std::string why = cat(connecting_text(peer, address), socket_error_text(full));
  log_warning(
      cat(rank_name(membership_.global_rank), ": ", why, "; it waits ", format_seconds(files_s_)));
  waiting_[peer] = {{}, deadline_in(files_s_), why};
  wake();  // the thread looks for a file
  return ok_status();
}

Result<int> Wires::begin_wire(int64_t peer) {
  BRAID_ASSIGN(const std::string address, address_of(peer));
  const std::vector<std::string> parts = split(address, ' ');
  int64_t port = 0;
  BRAID_CHECK(parts.size() == 2 && parse_int(parts[1], &port), "the address of a rank");
  BRAID_ASSIGN(const Addresses found, addresses_of(parts[0], port));
  FileHandle socket = socket_of(*found);
  const auto failed = [&] {
    const std::string why = socket_error_text(errno);
    return Status{Code::kUnavailable, cat(connecting_text(peer, address), why)};
  };
  if (!socket.is_open() && lacks_room(errno)) return errno;
  if (!socket.is_open()) return failed();
  prepare_socket(socket.get());
  const int begun = ::connect(socket.get(), found->ai_addr, found->ai_addrlen);
  if (begun != 0 && errno != EINPROGRESS) return failed();
  Connection& wire = add(std::move(socket), peer);
  wire.connecting = begun != 0;
  wires_[peer] = &wire;
  const auto self = static_cast<uint64_t>(membership_.global_rank);
  push(peer, {{Frame::kHello, 0, job_, self, 0}, nullptr});
  return 0;
}

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

// The message that waits for the next one from there; null: none does.
WireHandle Wires::next_awaited(const WireEnd& from) {
  const auto found = awaited_.find(from);
  if (found == awaited_.end()) return nullptr;
  WireHandle out = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) awaited_.erase(found);
  return out;
}

// To who waits for it, or kept for who will.
void Wires::take_early(const WireEnd& from, Early early) {
  if (const WireHandle room = next_awaited(from); room != nullptr) {
    give(room, from, std::move(early));
  } else {
    early_[from].push_back(std::move(early));
  }
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

Status Wires::wait(const WireHandle& message, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [&] { return message->done || !message->failure.empty(); };
  if (!changed_.wait_until(lock, deadline, over)) {
    forget(message);
    return {Code::kDeadline, cat(rank_name(message->end.peer), " does not answer")};
  }
  return message->done ? ok_status() : Status{Code::kUnavailable, message->failure};
}

bool Wires::is_done(const WireHandle& message) const {
  const std::lock_guard lock(mutex_);
  return message->done || !message->failure.empty();
}

void Wires::give_up(const WireHandle& message) {
  const std::lock_guard lock(mutex_);
  fail(*message, "nobody waits for it any more");
  forget(message);
}

// A receive holds its tensor as long as it is awaited. One that has been granted room keeps it: its
// bytes are on their way.
void Wires::forget(const WireHandle& message) {
  const auto found = awaited_.find(message->end);
  if (found == awaited_.end()) return;
  std::erase(found->second, message);
  if (found->second.empty()) awaited_.erase(found);
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
  fail_asking(peer, reason);
  for (const auto& [socket, connection] : connections_)
    if (connection->peer == peer) fail_all_on(*connection, reason);
  if (const auto waited = waiting_.extract(peer); !waited.empty())
    for (const Outgoing& out : waited.mapped().queue)
      if (out.message != nullptr) fail(*out.message, reason);
}

void Wires::fail_asking(int64_t peer, const std::string& reason) {
  std::erase_if(asking_for_room_, [&](const auto& entry) {
    if (entry.second->end.peer != peer) return false;
    fail(*entry.second, reason);
    return true;
  });
}

void Wires::fail_all_on(const Connection& connection, const std::string& reason) {
  if (connection.room != nullptr) fail(*connection.room, reason);
  for (const Outgoing& out : connection.queue)
    if (out.message != nullptr) fail(*out.message, reason);
}

// Who has made a connection may have greeted and ended already.
void Wires::hear_newcomers() {
  accept_all();
  std::vector<int> sockets;
  for (const auto& [socket, connection] : connections_)
    if (connection->peer < 0) sockets.push_back(socket);
  for (const int socket : sockets)
    if (!read(*connections_.at(socket)) && connections_.at(socket)->peer < 0)
      connections_.erase(socket);
}

void Wires::lose(int socket, const std::string& reason) {
  hear_newcomers();
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  const Connection& ended = *found->second;
  const int64_t peer = ended.peer;
  // Two ranks that greeted each other at once have two: what the peer sent before it ended may
  // still be on the other, whose end comes too.
  const auto other = std::find_if(connections_.begin(), connections_.end(), [&](const auto& each) {
    return each.first != socket && each.second->peer == peer && !each.second->connecting;
  });
  if (peer >= 0 && other != connections_.end()) {
    fail_all_on(ended, reason);
    wires_[peer] = other->second.get();
  } else if (peer >= 0) {
    lost_.emplace(peer, reason);
    fail_all_of(peer, reason);
    wires_.erase(peer);
  }
  connections_.erase(socket);
}

}  // namespace braid::inline comm

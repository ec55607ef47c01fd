// Messages between the ranks of a job over wires: one connection of TCP for two ranks, whatever the
// groups that they are in, made when one of them first sends the other something. What groups of
// many ranks are built on (comm/wired_backend.h); not for callers outside comm.
//
// Messages of one pair, group and tag arrive in the order in which they were sent. A short one
// leaves at once, and waits on the other side for who takes it; a long one leaves when its receiver
// has room. Thread-safe; a thread of its own reads, and writes what a socket did not take at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/membership.h"
#include "comm/sockets.h"
#include "comm/store.h"
#include "host/process.h"

namespace braid::inline comm {

// Whom a message is from, or for, and what tells it from the others of the two.
struct WireEnd {
  int64_t peer = 0;  // a global rank
  uint64_t group = 0;
  int32_t tag = 0;
  friend auto operator<=>(const WireEnd&, const WireEnd&) = default;
};

// One that has been begun. The tensor is kept until it is done, or given up.
struct WireMessage {
  at::Tensor data;
  WireEnd end;
  bool done = false;    // of the wires' lock, as the next
  std::string failure;  // why it never will be
};
using WireHandle = std::shared_ptr<WireMessage>;

class Wires {
 public:
  // Listens, and tells the store where. Who wants to connect while the process has no room for
  // another file waits, as does what this rank sends to whom it is not connected; after `files_s`
  // of that, messages from and to those who are not connected fail.
  static Result<std::unique_ptr<Wires>> open(Store& store, const Membership& membership,
                                             double files_s = 30);
  // All listen from here on; before anything is sent. Where a rank does is asked of the store when
  // it is first sent something: a request for each of those, with a lock held. REQUIRES: no thread
  // waits with this connection to the store.
  void meet(std::shared_ptr<Store> store);
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  // REQUIRES: contiguous tensors in host memory; both sides state the same number of bytes.
  WireHandle send(const WireEnd& to, at::Tensor data);
  WireHandle receive(const WireEnd& from, at::Tensor room);
  // kUnavailable: the peer is gone; kDeadline: not in time, then it is given up. The message names
  // the peer.
  Status wait(const WireHandle& message, Deadline deadline);
  bool is_done(const WireHandle& message) const;
  // Ends who waits for it: kUnavailable. Of one that was to be received the room is let go; what
  // comes then is the next one's, as with Gloo.
  void give_up(const WireHandle& message);

  // What is on its way fails, as does what is begun later. Again: nothing.
  void close();

  // Ranks that this one is connected to.
  int64_t peers() const;

 private:
  struct Connection;
  struct Frame;
  struct Early;
  struct Outgoing;
  struct Waiting;
  struct Files {
    FileHandle listener, poll, wake;
  };
  Wires(Files files, const Membership& membership, double files_s);

  void begin();
  void run();
  void accept_all();
  void note_room(int error);
  void fail_unheard(const std::string& reason);
  void watch_listener(bool on);
  void serve(int socket, uint32_t events);
  // All below REQUIRE that mutex_ is held. False: the connection has ended.
  bool read(Connection& from);
  bool begin_frame(Connection& from);
  bool begin_message(Connection& from);
  bool greeted(Connection& by);
  bool granted(const Connection& by);
  void asked(const Connection& by);
  void end_frame(Connection& from);
  bool flush(Connection& to);
  void watch(Connection& connection);
  bool connected(Connection& connection);
  void push(int64_t peer, Outgoing outgoing);
  WireHandle next_awaited(const WireEnd& from);
  void take_early(const WireEnd& from, Early early);
  void give(const WireHandle& room, const WireEnd& from, Early early);
  void grant(const WireHandle& room, int64_t peer, uint64_t number);
  Connection& add(FileHandle socket, int64_t peer);
  void hear_newcomers();
  void lose(int socket, const std::string& reason);
  void forget(const WireHandle& message);
  void finish(WireMessage& message);
  void fail(WireMessage& message, const std::string& reason);
  void fail_all_of(int64_t peer, const std::string& reason);
  void fail_all_on(const Connection& connection, const std::string& reason);
  Status connect(int64_t peer);
  // 0, or the system's error where no file is free.
  Result<int> begin_wire(int64_t peer);
  Result<std::string> address_of(int64_t peer);
  void try_waiting();
  void fail_asking(int64_t peer, const std::string& reason);
  void wake() const;

  const Membership membership_;
  const uint64_t job_;
  const double files_s_;
  const FileHandle listener_, poll_, wake_;
  std::optional<Deadline> full_until_;  // of the thread: no file is free, and when it goes on
  std::shared_ptr<Store> store_;
  std::map<int64_t, std::string> addresses_;  // of ranks that this one has connected to
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by socket
  std::map<int64_t, Connection*> wires_;  // by peer: the one that this rank sends on
  std::map<int64_t, Waiting> waiting_;    // by peer: wires that have no file yet
  std::map<int64_t, std::string> lost_;   // peers, and why
  // Who waits for a message, and what came before anybody waited for it.
  std::map<WireEnd, std::deque<WireHandle>> awaited_;
  std::map<WireEnd, std::deque<Early>> early_;
  // Long messages by the sender's number: that ask for room, and that have it.
  uint64_t numbers_ = 0;
  std::map<uint64_t, WireHandle> asking_for_room_;
  std::map<std::pair<int64_t, uint64_t>, WireHandle> rooms_;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace braid::inline comm

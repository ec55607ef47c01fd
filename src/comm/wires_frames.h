// What a connection of Wires reads and writes. Not for callers outside comm.
#pragma once

#include <cerrno>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/wires.h"

namespace braid::inline comm {

// Longer messages ask for room first: what came early takes memory that nobody has counted.
constexpr size_t kMostEarlyBytes = 16 << 10;

inline std::string rank_name(int64_t rank) { return cat("rank ", rank); }

inline char* bytes_of(const WireMessage& message) {
  return static_cast<char*>(message.data.data_ptr());
}
inline size_t size_of(const WireMessage& message) { return message.data.nbytes(); }

// Whether the process, or the machine, has no room for another file.
inline bool lacks_room(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// Messages go at once, and nobody waits in reading or writing.
void prepare_socket(int socket);

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

// A wire that waits for a file: what it is to send, until when, and what it lacks.
struct Wires::Waiting {
  std::deque<Outgoing> queue;
  Deadline until;
  std::string why;
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

}  // namespace braid::inline comm

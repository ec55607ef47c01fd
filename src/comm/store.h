// The store that the ranks of a job meet at: names and values on one server (c10d's TCPStore),
// every wait with a deadline. An object is one connection, on which requests go one after the
// other: of several threads that share it none may wait for a key; duplicate() gives a thread its
// own. Keys live below the attempt's prefix, so that a restarted job sees none of the last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/membership.h"
#include "host/process.h"

namespace c10d {
class Store;
}

namespace braid::inline comm {

class Store {
 public:
  // Opens the store of a job, as its server where this rank has to serve it. Whoever waits for the
  // server says so after `notice_s`. kUnavailable within `timeout_s`: nobody serves host and port,
  // or somebody else does, and who.
  static Result<std::unique_ptr<Store>> open(const Membership& membership, double timeout_s,
                                             double notice_s);
  // Serves a store for ranks of this machine on a free port of the loopback interface.
  static Result<std::unique_ptr<Store>> serve_local(const std::string& attempt);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  int64_t port() const { return port_; }
  Result<std::unique_ptr<Store>> duplicate() const;

  Status set(const std::string& key, const std::string& value);
  // The value once it is there; kDeadline when it is not within `timeout_s`.
  Result<std::string> wait(const std::string& key, double timeout_s);
  // The values of keys that are all there, in one request.
  Result<std::vector<std::string>> get_all(const std::vector<std::string>& keys);
  // The values of those keys that are there, without waiting.
  Result<std::vector<std::optional<std::string>>> look(const std::vector<std::string>& keys);
  // Sets the key unless it has a value; the value that it has then.
  Result<std::string> set_once(const std::string& key, const std::string& value);
  // Adds and gives the sum.
  Result<int64_t> add(const std::string& key, int64_t value);

  // That this object has sent so far.
  int64_t requests() const { return requests_; }

  // For process groups, whose keys must not meet those of others.
  struct Handle;
  const Handle& handle() const { return *handle_; }

 private:
  Store(std::unique_ptr<Handle> handle, int64_t port);
  static Result<std::unique_ptr<Store>> attempt(const Membership& membership, double timeout_s);
  static Result<std::unique_ptr<Store>> connect(const Membership& membership, double timeout_s);
  static Result<std::unique_ptr<Store>> serve(FileHandle socket, const Membership& membership);
  static std::string port_remedy(const Membership& membership, int error);

  std::unique_ptr<Handle> handle_;
  int64_t port_ = 0;
  std::atomic<int64_t> requests_ = 0;
};

}  // namespace braid::inline comm

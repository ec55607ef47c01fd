// Sockets of TCP: listening on one address, and reaching one. Not for callers outside comm.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "host/process.h"

namespace braid::inline comm {

// A listening socket on host:port, and the port it got (0 asks for a free one).
struct Listener {
  FileHandle socket;
  int64_t port = 0;
};

// What the system says of a socket that could not be had, with the limit and its remedy where the
// process, or the machine, has no room for another file.
std::string socket_error_text(int error);

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
// An error names the host.
Result<Addresses> addresses_of(const std::string& host, int64_t port);

// A socket for connections to the address, closed in programs that this one starts.
FileHandle socket_of(const addrinfo& address);

// Listens on the one address that others are told, not on every interface. Where that fails the
// message begins with `what`, as "cannot serve the store", and `remedy(errno)` ends it.
Result<Listener> listen_on(const std::string& host, int64_t port, const std::string& what,
                           const std::function<std::string(int error)>& remedy);

// This machine's address, in numbers, on the way to another one, or of an interface by name.
Result<std::string> own_address_towards(const std::string& host, int64_t port);
Result<std::string> own_address_of(const std::string& interface);

}  // namespace braid::inline comm

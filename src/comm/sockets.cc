#include "comm/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace braid::inline comm {
namespace {

Status unreachable(const std::string& message) { return {Code::kUnavailable, message}; }

int64_t bound_port(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  const bool six = address.ss_family == AF_INET6;
  return ntohs(six ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string in_numbers(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  const int error =
      ::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? std::string(host.data()) : std::string();
}

}  // namespace

std::string socket_error_text(int error) {
  if (error == ENFILE) return "open files: the machine allows no more";
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::strerror(error);
  return cat("open files: limit ", limit.rlim_cur, "; raise `ulimit -n`");
}

Result<Addresses> addresses_of(const std::string& host, int64_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = std::to_string(port);
  if (const int error = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found); error != 0)
    return invalid_input(cat("the host '", host, "' has no address: ", gai_strerror(error)));
  return Addresses(found, ::freeaddrinfo);
}

FileHandle socket_of(const addrinfo& address) {
  return FileHandle(
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

Result<Listener> listen_on(const std::string& host, int64_t port, const std::string& what,
                           const std::function<std::string(int error)>& remedy) {
  BRAID_ASSIGN(const Addresses found, addresses_of(host, port));
  int failure = 0;
  Listener out;
  for (const addrinfo* at = found.get(); at != nullptr && out.port == 0; at = at->ai_next) {
    FileHandle socket = socket_of(*at);
    const int on = 1;
    if (socket.is_open()) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const bool listens = socket.is_open() &&
                         ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
                         ::listen(socket.get(), SOMAXCONN) == 0;
    if (!listens) {
      failure = errno;
      continue;
    }
    out.port = bound_port(socket.get());
    out.socket = std::move(socket);
  }
  if (out.port != 0) return out;
  return unreachable(
      cat(what, " on ", host, ":", port, ": ", socket_error_text(failure), remedy(failure)));
}

// A datagram socket that is connected sends nothing; the system has chosen its address.
Result<std::string> own_address_towards(const std::string& host, int64_t port) {
  BRAID_ASSIGN(const Addresses found, addresses_of(host, port));
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    const FileHandle socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (!socket.is_open() || ::connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
      continue;
    const std::string name = in_numbers(reinterpret_cast<const sockaddr*>(&own), size);
    if (!name.empty()) return name;
  }
  return unreachable(cat("this machine has no way to ", host));
}

Result<std::string> own_address_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return unreachable(cat("the interfaces of this machine: ", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, ::freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || interface != at->ifa_name) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string name =
        in_numbers(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!name.empty()) return name;
  }
  return invalid_input(
      cat("the interface '", interface, "' of GLOO_SOCKET_IFNAME has no address on this machine"));
}

}  // namespace braid::inline comm

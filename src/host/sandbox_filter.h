// What a process of a sandbox may not ask the kernel for (seccomp), and giving up capabilities. Of
// the calling process; pure but for that.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace braid::inline host {

// Refuses mounts, namespaces, other processes' memory, sockets, keys, modules, clocks and the like;
// empty on processors whose system calls are not listed here.
std::vector<sock_filter> call_filter();

// From now on, for this process and all that it starts. Needs no_new_privs. False with errno.
bool install_filter(const std::vector<sock_filter>& filter);

// Effective, permitted and inheritable. False with errno.
bool clear_capabilities();

}  // namespace braid::inline host

// What Store holds, for the process groups that are built on it. Not for callers outside comm.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/status.h"
#include "comm/store.h"

namespace braid::inline comm {

struct Store::Handle {
  c10::intrusive_ptr<c10d::Store> store;
};

// What an exception of c10d says, without its stack of calls.
std::string short_message(const std::exception& error);

}  // namespace braid::inline comm

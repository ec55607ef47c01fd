// The c10d backend of one group of ranks. Not for callers outside comm.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/status.h"
#include "comm/store.h"

namespace braid {

struct GroupBackend {
  c10::intrusive_ptr<c10d::Backend> c10d;
};

struct GroupBackendOptions {
  std::string name;  // distinguishes the group's keys in the store
  int place = 0;     // of this rank in the group
  int size = 1;
  double deadline_s = 300;
  bool one_machine = true;  // listen on the loopback interface only
};

// Connects the members of a group over Gloo (tensors in host memory); returns when all are there.
Result<std::unique_ptr<GroupBackend>> connect_gloo(Store& store,
                                                   const GroupBackendOptions& options);

}  // namespace braid

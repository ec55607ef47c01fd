// The c10d backends of one group of ranks. Not for callers outside comm.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/status.h"
#include "comm/store.h"

namespace braid::inline comm {

struct GroupBackend {
  std::mutex starting;  // transfers of several threads begin one after the other
  // Of tensors in host memory: Gloo, or wires (comm/wired_backend.h).
  c10::intrusive_ptr<c10d::Backend> host;
  bool gathers = false;  // the host's all-gather takes no memory beside its tensors
  // NCCL: of tensors on GPUs. It has neither tags nor an order between the two directions of a
  // pair, so every lane (the collectives; a channel in one direction) has a backend of its own,
  // connected on first use.
  std::map<std::string, c10::intrusive_ptr<c10d::Backend>> nccl;
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

// Whether this build has NCCL and BRAID_NO_NCCL is not in the environment. Without it tensors of
// GPUs pass through host memory.
bool has_nccl();

// Whether a wait for a transfer over NCCL holds the host up: where TORCH_NCCL_BLOCKING_WAIT=1 is in
// the environment.
bool nccl_holds_host_up();

// A backend over NCCL between the current CUDA devices of the members. It connects when it is first
// used, and is aborted when the process ends before its time (comm/ending.h). REQUIRES: has_nccl().
Result<c10::intrusive_ptr<c10d::Backend>> connect_nccl(Store& store,
                                                       const GroupBackendOptions& options);

}  // namespace braid::inline comm

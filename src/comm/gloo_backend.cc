// The one source that sees Gloo's headers. libtorch contains Gloo, whose version the installed
// headers may not match: nothing of Gloo may be defined here (gloo_backend_test looks), so only
// ProcessGroupGloo's options, its device factories and the Backend interface are used.
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/text.h"
#include "comm/group_backend.h"
#include "comm/store_handle.h"

namespace braid::inline comm {
namespace {

// All connections are made at once: those that are made when two ranks first communicate
// ("lazyInit") wait for ever where groups share a device, and a device each costs more
// (bench/emulation.py, 32 ranks: 2.7 times the CPU time of one for all).
std::shared_ptr<gloo::transport::Device> device_of(bool one_machine) {
  using c10d::ProcessGroupGloo;
  // The interface variable is PyTorch's (torch.distributed, "Choosing the network interface").
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return ProcessGroupGloo::createDeviceForInterface(interface);
  if (one_machine) return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return ProcessGroupGloo::createDefaultDevice();
}

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(
    const GroupBackendOptions& options) {
  using c10d::ProcessGroupGloo;
  auto out = ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<int64_t>(options.deadline_s * 1000)));
  out->threads = 1;  // collectives of a group run one after another, as NCCL runs them
  // A device is a thread that watches connections: one for all groups of the process.
  static const auto device = device_of(options.one_machine);
  out->devices.push_back(device);
  return out;
}

}  // namespace

Result<std::unique_ptr<GroupBackend>> connect_gloo(Store& store,
                                                   const GroupBackendOptions& options) {
  auto backend = std::make_unique<GroupBackend>();
  try {
    auto keys =
        c10::make_intrusive<c10d::PrefixStore>(cat("group/", options.name), store.handle().store);
    backend->host = c10::make_intrusive<c10d::ProcessGroupGloo>(keys, options.place, options.size,
                                                                gloo_options(options));
  } catch (const std::exception& error) {
    return Status{Code::kUnavailable,
                  cat("group '", options.name, "' did not connect: ", short_message(error))};
  }
  return backend;
}

}  // namespace braid::inline comm

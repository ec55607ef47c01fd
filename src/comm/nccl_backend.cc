// The one source that sees NCCL's headers. Compiled where the build finds them beside a libtorch
// that was built with CUDA (BRAID_WITH_NCCL); else groups have no NCCL.
#include "comm/group_backend.h"

#ifdef BRAID_WITH_NCCL
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/text.h"
#include "comm/store_handle.h"
#endif

namespace braid::inline comm {

#ifdef BRAID_WITH_NCCL

bool has_nccl() {
  static const bool left_out = std::getenv("BRAID_NO_NCCL") != nullptr;
  return !left_out;
}

Result<c10::intrusive_ptr<c10d::Backend>> connect_nccl(Store& store,
                                                       const GroupBackendOptions& options) {
  // Waits return when the transfer is done, with a deadline, as over Gloo (torch.distributed,
  // TORCH_NCCL_BLOCKING_WAIT). A value that the user set stays.
  ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/0);
  try {
    auto keys =
        c10::make_intrusive<c10d::PrefixStore>(cat("nccl/", options.name), store.handle().store);
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = std::chrono::milliseconds(static_cast<int64_t>(options.deadline_s * 1000));
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<c10d::ProcessGroupNCCL>(
        keys, options.place, options.size, std::move(nccl)));
  } catch (const std::exception& error) {
    return Status{Code::kUnavailable,
                  cat("group '", options.name, "' did not connect: ", short_message(error))};
  }
}

#else

bool has_nccl() { return false; }

Result<c10::intrusive_ptr<c10d::Backend>> connect_nccl(Store&, const GroupBackendOptions&) {
  BRAID_CHECK(false, "this build has no NCCL");
}

#endif

}  // namespace braid::inline comm

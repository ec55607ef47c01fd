// The one source that sees NCCL's headers. Compiled where the build finds them beside a libtorch
// that was built with CUDA (BRAID_WITH_NCCL); else groups have no NCCL.
#include "comm/group_backend.h"

#include <cstdlib>
#include <string_view>

#ifdef BRAID_WITH_NCCL
#include <chrono>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/text.h"
#include "comm/ending.h"
#include "comm/store_handle.h"
#endif

namespace braid::inline comm {

bool nccl_holds_host_up() {
  static const char* const said = std::getenv("TORCH_NCCL_BLOCKING_WAIT");
  static const bool holds = said != nullptr && std::string_view(said) == "1";
  return holds;
}

#ifdef BRAID_WITH_NCCL

namespace {

// A peer that is gone leaves kernels of NCCL that never end; they are aborted with their groups.
void abort_at_ending(const c10::intrusive_ptr<c10d::ProcessGroupNCCL>& backend) {
  static std::mutex mutex;
  static std::vector<c10::weak_intrusive_ptr<c10d::ProcessGroupNCCL>> backends;
  const std::lock_guard lock(mutex);
  if (backends.empty())
    at_ending([] {
      const std::lock_guard lock(mutex);
      for (const auto& each : backends)
        if (const auto living = each.lock()) living->abort();
    });
  backends.emplace_back(backend);
}

}  // namespace

bool has_nccl() {
  static const bool left_out = std::getenv("BRAID_NO_NCCL") != nullptr;
  return !left_out;
}

Result<c10::intrusive_ptr<c10d::Backend>> connect_nccl(Store& store,
                                                       const GroupBackendOptions& options) {
  // Deadlines and failures are the position board's; c10d would end the process without a word of
  // where it was. A value that the user set stays.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  try {
    auto keys =
        c10::make_intrusive<c10d::PrefixStore>(cat("nccl/", options.name), store.handle().store);
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = std::chrono::milliseconds(static_cast<int64_t>(options.deadline_s * 1000));
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(keys, options.place, options.size,
                                                               std::move(nccl));
    abort_at_ending(backend);
    return c10::intrusive_ptr<c10d::Backend>(std::move(backend));
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

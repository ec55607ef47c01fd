#include "run/kernel_choices.h"

#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "comm/communicator.h"
#include "host/file.h"
#include "identity/run_identity.h"

namespace braid::inline run {
namespace {

constexpr const char* kKernelFile = "kernels.txt";
constexpr const char* kList = "kernels";  // of the job's store

// The choices of an earlier process; "" if there are none.
Result<std::string> earlier_choices(const Config& config, const ResumedCheckpoint& resumed) {
  if (!resumed.none()) return json_field<std::string>(resumed.numbers(), kKernelKey);
  const std::string path = join_path(run_folder(config), kKernelFile);
  return path_exists(path) ? read_file(path) : Result<std::string>(std::string());
}

}  // namespace

Result<std::unique_ptr<KernelChoices>> KernelChoices::begin(const Config& config,
                                                            const ResumedCheckpoint& resumed,
                                                            World* world) {
  const bool alone = world == nullptr || world->world_size() == 1;
  const bool leads = alone || world->global_rank() == 0;
  std::unique_ptr<KernelChoices> out(new KernelChoices(alone ? nullptr : world));
  std::string choices;
  if (leads) {
    BRAID_ASSIGN(choices, earlier_choices(config, resumed));
  }
  Status taken = set_matrix_choices(choices);
  if (!alone) {
    if (leads) take_cached_choices();
    BRAID_ASSIGN(choices, world->told_by_first("its matrix libraries", matrix_choices()));
    if (!leads) taken = set_matrix_choices(choices);
    make_choices_with(out.get());
  }
  if (!taken.ok())
    log_warning(
        cat("numbers will differ in their last bits from those of the run so far, or of "
            "its first rank: ",
            taken.message()));
  return out;
}

KernelChoices::~KernelChoices() {
  if (world_ != nullptr) make_choices_with(nullptr);
}

std::optional<std::string> KernelChoices::known(const std::string& shape) {
  auto found = world_->settled(kList, shape);
  if (!found.ok()) throw CommunicationFailure(found.status());
  return *std::move(found);
}

std::string KernelChoices::settle(const std::string& shape, const std::string& library) {
  auto settled = world_->settle(kList, shape, library);
  if (!settled.ok()) throw CommunicationFailure(settled.status());
  return *std::move(settled);
}

// A store that is gone ends the job soon; what this rank knows can still be saved.
std::map<std::string, std::string> KernelChoices::all() {
  const auto further = world_->settled_behind(kList, std::ssize(settled_));
  if (further.ok()) settled_.insert(further->begin(), further->end());
  return settled_;
}

Status save_kernel_choices(const Config& config) {
  const std::string path = join_path(run_folder(config), kKernelFile);
  const std::string choices = matrix_choices();
  const auto written = read_file(path);
  return written.ok() && *written == choices ? ok_status() : write_file_atomic(path, choices);
}

}  // namespace braid::inline run

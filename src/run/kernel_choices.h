// Which matrix libraries a run multiplies with (nn/kernels/choice.h): each rounds in its own way,
// so a continued run keeps them and the ranks of a job have the same.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "checkpoint/resumed_checkpoint.h"
#include "comm/world.h"
#include "config/options.h"
#include "nn/kernels/choice.h"

namespace braid::inline run {

inline constexpr const char* kKernelKey = "kernels";  // in a checkpoint's state

// While it lives choices are those of the run: of the process before it (RUN/kernels.txt, or the
// checkpoint that is to be continued), else of rank 0's cache, else of the rank that first needs
// one.
class KernelChoices : private ChoiceAgreement {
 public:
  // Before models are loaded. All ranks call it; `world` may be null and must outlive it.
  static Result<std::unique_ptr<KernelChoices>> begin(const Config& config,
                                                      const ResumedCheckpoint& resumed,
                                                      World* world);
  ~KernelChoices() override;

 private:
  explicit KernelChoices(World* world) : world_(world) {}
  std::optional<std::string> known(const std::string& shape) override;
  std::string settle(const std::string& shape, const std::string& library) override;
  std::map<std::string, std::string> all() override;

  World* world_;  // null where there are no other ranks
  std::map<std::string, std::string> settled_;
};

// Writes RUN/kernels.txt where there are new ones.
Status save_kernel_choices(const Config& config);

}  // namespace braid::inline run

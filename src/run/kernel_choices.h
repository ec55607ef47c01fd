// Which matrix libraries a run multiplies with (nn/kernels/choice.h): each rounds in its own way,
// so a continued run keeps them and the ranks of a job have the same.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "comm/world.h"
#include "config/options.h"
#include "nn/kernels/choice.h"

namespace braid::inline run {

inline constexpr const char* kKernelKey = "kernels";  // in a checkpoint's state

// While it lives choices are those of the run: of the process before it (RUN/kernels.txt, or the
// checkpoint that is to be continued), else of rank 0's cache, else of the rank that first needs
// one.
class KernelChoices {
 public:
  // Before models are loaded. All ranks call it; `world` may be null and must outlive it.
  static Result<std::unique_ptr<KernelChoices>> begin(const Config& config, World* world);
  ~KernelChoices();

 private:
  KernelChoices() = default;
  std::unique_ptr<ChoiceAgreement> agreement_;
};

// Writes RUN/kernels.txt where there are new ones.
Status save_kernel_choices(const Config& config);

}  // namespace braid::inline run

// Runs the ops of one stage of a schedule. Single-threaded; autograd uses libtorch's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "base/status.h"
#include "schedule/schedule.h"

namespace braid {

// Runs the ops of `stage` in order: a forward calls forward_loss and keeps the scalar that it
// returns, a backward accumulates its gradients and frees it. Stops at the first failure of
// forward_loss; gradients of the backwards before it are then already accumulated.
// REQUIRES: verify(schedule) is ok.
Status run_schedule(const Schedule& schedule, int32_t stage,
                    const std::function<Result<at::Tensor>(int32_t micro_batch)>& forward_loss);

}  // namespace braid

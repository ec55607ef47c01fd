#include "train/executor.h"

#include <vector>

#include "base/text.h"

namespace braid {

Status run_schedule(const Schedule& schedule, int32_t stage,
                    const std::function<Result<at::Tensor>(int32_t micro_batch)>& forward_loss) {
  BRAID_CHECK(stage >= 0 && stage < schedule.stages, cat("stage ", stage));
  std::vector<at::Tensor> losses(schedule.micro_batches);
  for (const ScheduleOp& op : schedule.per_stage[stage]) {
    at::Tensor& loss = losses[op.micro_batch];
    if (op.kind == ScheduleOp::Kind::kForward) {
      BRAID_ASSIGN(loss, forward_loss(op.micro_batch).at(cat("micro-batch ", op.micro_batch)));
      continue;
    }
    BRAID_CHECK(loss.defined(), cat("no loss of micro-batch ", op.micro_batch));
    loss.backward();
    loss.reset();
  }
  return {};
}

}  // namespace braid

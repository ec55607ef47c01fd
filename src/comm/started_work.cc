#include "comm/started_work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "base/text.h"
#include "comm/beat.h"
#include "comm/membership.h"
#include "comm/position.h"
#include "comm/store.h"
#include "device/device_copy.h"

namespace braid::inline comm {

at::Tensor Passage::given(const at::Tensor& tensor) {
  held.push_back(direct ? tensor : to_host(tensor));
  return held.back();
}

at::Tensor Passage::taken(const at::Tensor& tensor) {
  if (direct || tensor.is_cpu()) return tensor;
  arrivals.push_back({at::empty(tensor.sizes(), tensor.options().device(at::kCPU)), tensor});
  return arrivals.back().from;
}

at::Tensor Passage::changed(const at::Tensor& tensor) {
  if (direct || tensor.is_cpu()) return tensor;
  arrivals.push_back({to_host(tensor), tensor});
  return arrivals.back().from;
}

void Passage::arrive() {
  const at::NoGradGuard no_grad;
  for (const Arrival& each : arrivals) each.to.copy_(to_device(each.from, each.to.device()));
}

TransferPeers::TransferPeers(std::vector<int64_t> of, const std::string& group)
    : ranks(std::move(of)),
      text(cat(ranks.size() == 1 ? "rank " : "ranks ", rank_list(ranks), " (group ", group, ")")) {}

std::string operation_text(const StartedWork& work) {
  return cat(transfer_name(work.transfer), " of ", work.tensor, " with ", work.with->text);
}

bool StartedWork::is_late() const {
  const std::chrono::duration<double> under_way = std::chrono::steady_clock::now() - started;
  return under_way.count() >= context.deadline_s * 0.99;
}

Status transfer_failure(const StartedWork& work, const std::string& cause, bool late) {
  std::string text =
      cat(operation_text(work), ": ",
          late ? cat("not done within ", work.context.deadline_s, " s (runtime.wait_s)") : cause,
          "; rank ", work.context.global_rank, ": ", work.context.board->text());
  if (work.context.store != nullptr)
    for (const std::string& line : last_positions(*work.context.store, work.with->ranks))
      text += cat("; ", line);
  return {late ? Code::kDeadline : Code::kUnavailable, text};
}

}  // namespace braid::inline comm

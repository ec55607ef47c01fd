// GRPO's clipped loss, the one that Braid has by itself: the same bytes, and a place to begin from.
// build/braid build-loss examples/own_loss/grpo.cc && build/braid train CONFIG
// algorithm.loss=examples/own_loss/grpo.so
#include "braid_loss.h"

#include <set>

namespace {

braid::OwnLoss clipped(const braid::OwnLossInput& in) {
  const at::Tensor ratio = at::exp(in.logprobs_R - in.old_logprobs_R);
  const at::Tensor bounded = at::clamp(ratio, 1 - in.clip_low, 1 + in.clip_high);
  const at::Tensor losses = at::maximum(-in.advantages_R * ratio, -in.advantages_R * bounded);
  return {.losses_R = losses, .metrics = {{"own/ratio_mean", ratio}}};
}

// The reward minus the mean of its prompt's, over their spread.
braid::OwnAdvantages of_groups(const braid::OwnAdvantagesInput& in) {
  const at::Tensor rewards = in.rewards_S.to(at::kDouble);
  const at::Tensor groups = at::tensor(in.groups, at::kLong);
  at::Tensor advantages = at::zeros_like(rewards);
  for (const int64_t group : std::set<int64_t>(in.groups.begin(), in.groups.end())) {
    const at::Tensor members = at::nonzero(groups == group).flatten();
    const at::Tensor own = rewards.index_select(0, members);
    advantages.index_copy_(0, members, (own - own.mean()) / (own.std() + 1e-4));
  }
  const at::Tensor lens = at::tensor(in.response_lens, at::kLong);
  return {.advantages_R = at::repeat_interleave(advantages, lens)};
}

}  // namespace

BRAID_LOSS(clipped);
BRAID_ADVANTAGES(of_groups);

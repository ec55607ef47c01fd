#include "weights/follow.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>

#include "base/text.h"
#include "nn/decoder.h"

namespace braid::inline weights {
namespace {

// `own` in its type becomes the mean; `average`: its values in f32, undefined where it is them.
void mix(at::Tensor own, at::Tensor average, const at::Tensor& other, double keep) {
  if (keep == 0) {
    own.copy_(other);
    return;
  }
  at::Tensor mean = average.defined() ? average : own;
  mean.mul_(keep).add_(at::mul(other.to(at::kFloat), 1 - keep));
  if (average.defined()) own.copy_(mean);
}

// The source's tensors in the order of the target's; it may have more.
std::vector<at::Tensor> tensors_of(const ModelInstance& source, const ModelInstance& target) {
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, parameter] : source.model->parameters())
    by_name[name] = parameter.detach();
  std::vector<at::Tensor> out;
  for (const auto& [name, parameter] : target.model->parameters()) out.push_back(by_name.at(name));
  return out;
}

// The values of the source come into the target unit by unit, and what this rank keeps of them is
// mixed there.
Status follow_slices(ModelInstance& target, ModelInstance& source, double keep) {
  WeightShards &to = *target.shards, &from = *source.shards;
  const auto& decoder = dynamic_cast<const Decoder&>(*target.model);
  const auto ours = target.model->parameters();
  const std::vector<at::Tensor> theirs = tensors_of(source, target);
  for (int64_t unit = 0; unit < to.units(); ++unit) {
    std::vector<at::Tensor> before;
    for (const size_t bucket : to.buckets_of(unit)) before.push_back(to.slice(bucket).clone());
    BRAID_TRY(from.gather(unit));
    to.open(unit);
    for (size_t i = 0; i < ours.size(); ++i)
      if (decoder.unit_of(ours[i].first) == unit) ours[i].second.detach().copy_(theirs[i]);
    to.close(unit);
    from.leave(unit);
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t bucket = to.buckets_of(unit)[i];
      at::Tensor own = to.slice(bucket);
      const at::Tensor arrived = own.clone();
      own.copy_(before[i]);
      mix(own, target.average.empty() ? at::Tensor() : target.average[bucket], arrived, keep);
    }
  }
  return ok_status();
}

}  // namespace

void keep_average(ModelInstance& role) {
  const at::NoGradGuard no_grad;
  if (role.model->options().dtype == at::kFloat) return;
  if (role.shards)
    for (size_t bucket = 0; bucket < role.shards->buckets(); ++bucket)
      role.average.push_back(role.shards->slice(bucket).to(at::kFloat));
  else
    for (const auto& [name, parameter] : role.model->parameters())
      role.average.push_back(parameter.detach().to(at::kFloat));
}

Status follow_weights(ModelInstance& target, ModelInstance& source, double keep) {
  const at::NoGradGuard no_grad;
  const auto ours = target.model->parameters();
  const std::vector<at::Tensor> theirs = tensors_of(source, target);
  BRAID_CHECK(!target.shards == !source.shards, "a role follows one of its own layout");
  target.torn = true;
  if (target.shards) {
    BRAID_TRY(follow_slices(target, source, keep));
  } else {
    for (size_t i = 0; i < ours.size(); ++i)
      mix(ours[i].second.detach(), target.average.empty() ? at::Tensor() : target.average[i],
          theirs[i], keep);
  }
  target.model->weights_changed();
  target.torn = false;
  return ok_status();
}

}  // namespace braid::inline weights

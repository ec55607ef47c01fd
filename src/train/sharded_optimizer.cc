#include "train/sharded_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "train/optimizer.h"
#include "train/update_rule.h"

namespace braid {
namespace {

// Elements of a parameter that lie in the owned part of its bucket.
struct Overlap {
  int64_t in_parameter = 0, in_owned = 0, size = 0;
};

Overlap overlap_of(const GradientPlace& place, int64_t owned_begin, int64_t owned_size) {
  const int64_t begin = std::max(place.begin, owned_begin);
  const int64_t end = std::min(place.begin + place.parameter.numel(), owned_begin + owned_size);
  return {begin - place.begin, begin - owned_begin, std::max<int64_t>(0, end - begin)};
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(MainGradients& gradients, Communicator* group,
                                   const OptimizerConfig& config)
    : gradients_(gradients), group_(group), config_(config) {
  const at::NoGradGuard no_grad;
  for (size_t bucket = 0; bucket < gradients_.buckets(); ++bucket) {
    const at::Tensor like = gradients_.owned(bucket);
    Owned owned{at::zeros_like(like), {}, {}};
    if (has_moments(config_)) {
      owned.exp_avg = at::zeros_like(like);
      owned.exp_avg_sq = at::zeros_like(like);
    }
    owned_.push_back(std::move(owned));
  }
  for (const GradientPlace& place : gradients_.places()) {
    const Overlap part = overlap_of(place, gradients_.owned_begin(place.bucket),
                                    gradients_.owned_size(place.bucket));
    if (part.size > 0)
      owned_[place.bucket]
          .master.narrow(0, part.in_owned, part.size)
          .copy_(place.parameter.detach().flatten().narrow(0, part.in_parameter, part.size));
  }
}

double ShardedOptimizer::owned_squares(const std::set<std::string>& not_counted) const {
  double sum = 0;
  for (const GradientPlace& place : gradients_.places()) {
    if (not_counted.count(place.name) > 0) continue;
    const Overlap part = overlap_of(place, gradients_.owned_begin(place.bucket),
                                    gradients_.owned_size(place.bucket));
    if (part.size > 0)
      sum += sum_of_squares(gradients_.owned(place.bucket).narrow(0, part.in_owned, part.size));
  }
  return sum;
}

Result<ShardedOptimizer::Report> ShardedOptimizer::step(int64_t total_steps, double grad_norm) {
  const at::NoGradGuard no_grad;
  Report report{learning_rate(config_, step_, total_steps), false};
  if (!std::isfinite(grad_norm)) return report;
  ++step_;
  UpdateParts parts;
  for (const GradientPlace& place : gradients_.places()) {
    const Overlap part = overlap_of(place, gradients_.owned_begin(place.bucket),
                                    gradients_.owned_size(place.bucket));
    if (part.size == 0) continue;
    const auto cut = [&](const at::Tensor& whole) {
      return whole.narrow(0, part.in_owned, part.size);
    };
    const Owned& owned = owned_[place.bucket];
    UpdateTensors& tensors = decays(config_, place.parameter) ? parts.decayed : parts.spared;
    tensors.weights.push_back(cut(owned.master));
    tensors.gradients.push_back(cut(gradients_.owned(place.bucket)));
    if (!has_moments(config_)) continue;
    tensors.exp_avgs.push_back(cut(owned.exp_avg));
    tensors.exp_avg_sqs.push_back(cut(owned.exp_avg_sq));
  }
  apply_update(config_, {step_, report.lr, grad_norm}, std::move(parts));
  BRAID_TRY(publish());
  report.applied = true;
  return report;
}

Status ShardedOptimizer::publish() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> whole(owned_.size());
  for (size_t bucket = 0; bucket < owned_.size(); ++bucket) {
    const at::Tensor& master = owned_[bucket].master;
    whole[bucket] = master;
    if (group_ == nullptr || group_->size() == 1 || !gradients_.sharded()) continue;
    // In the parameters' dtype: half of the bytes for bf16.
    const at::ScalarType type = gradients_.places()[0].parameter.scalar_type();
    const at::Tensor own = master.to(type);
    whole[bucket] = at::empty({own.numel() * group_->size()}, own.options());
    BRAID_TRY(group_->all_gather(whole[bucket], own, cat("weights, bucket ", bucket)).wait());
  }
  for (const GradientPlace& place : gradients_.places())
    place.parameter.detach().copy_(whole[place.bucket]
                                       .narrow(0, place.begin, place.parameter.numel())
                                       .view(place.parameter.sizes()));
  return {};
}

std::vector<StateSlice> ShardedOptimizer::state() const {
  std::vector<StateSlice> out;
  for (const GradientPlace& place : gradients_.places()) {
    const Overlap part = overlap_of(place, gradients_.owned_begin(place.bucket),
                                    gradients_.owned_size(place.bucket));
    if (part.size == 0) continue;
    const Owned& owned = owned_[place.bucket];
    const auto add = [&](const char* state, const at::Tensor& values) {
      if (values.defined())
        out.push_back(
            {place.name, state, part.in_parameter, values.narrow(0, part.in_owned, part.size)});
    };
    add("master", owned.master);
    add("exp_avg", owned.exp_avg);
    add("exp_avg_sq", owned.exp_avg_sq);
  }
  return out;
}

}  // namespace braid

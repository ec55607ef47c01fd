#include "train/sharded_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/text.h"
#include "train/optimizer.h"
#include "train/update_rule.h"

namespace braid::inline train {
ShardedOptimizer::ShardedOptimizer(MainGradients& gradients, Communicator* group,
                                   const OptimizerConfig& config, WeightShards* shards)
    : gradients_(gradients), group_(group), shards_(shards), config_(config) {
  const at::NoGradGuard no_grad;
  for (size_t bucket = 0; bucket < gradients_.buckets(); ++bucket) {
    Owned owned;
    if (!masters_are_parameters()) owned.master = first_master(bucket);
    if (has_moments(config_)) {
      owned.exp_avg = at::zeros_like(gradients_.owned(bucket));
      owned.exp_avg_sq = at::zeros_like(gradients_.owned(bucket));
    }
    owned_.push_back(std::move(owned));
  }
}

at::Tensor ShardedOptimizer::first_master(size_t bucket) const {
  if (shards_ != nullptr) return shards_->slice(bucket).to(at::kFloat);
  const at::Tensor master = at::zeros_like(gradients_.owned(bucket));
  for (const BucketPlace& place : gradients_.places()) {
    const SlicePart part = gradients_.owned_part(place);
    if (place.bucket == bucket && part.size > 0)
      master.narrow(0, part.in_slice, part.size)
          .copy_(place.parameter.detach().flatten().narrow(0, part.in_parameter, part.size));
  }
  return master;
}

bool ShardedOptimizer::masters_are_parameters() const {
  const auto& places = gradients_.places();  // none on ranks below all adapters
  return shards_ == nullptr && !places.empty() && places[0].parameter.scalar_type() == at::kFloat;
}

at::Tensor ShardedOptimizer::master(const BucketPlace& place, const SlicePart& part) const {
  const at::Tensor& own = owned_[place.bucket].master;
  if (own.defined()) return own.narrow(0, part.in_slice, part.size);
  return place.parameter.detach().view({-1}).narrow(0, part.in_parameter, part.size);
}

at::Tensor ShardedOptimizer::own_weights(size_t bucket) const {
  // In the parameters' dtype: half of the bytes for bf16.
  const at::ScalarType type = gradients_.places()[0].parameter.scalar_type();
  if (owned_[bucket].master.defined()) return owned_[bucket].master.to(type);
  const at::Tensor out = at::zeros_like(gradients_.owned(bucket));
  for (const BucketPlace& place : gradients_.places())
    if (const SlicePart part = gradients_.owned_part(place); place.bucket == bucket)
      out.narrow(0, part.in_slice, part.size).copy_(master(place, part));
  return out;
}

void ShardedOptimizer::refresh_slices() {
  for (size_t bucket = 0; bucket < owned_.size(); ++bucket)
    if (const at::Tensor& slice = shards_->slice(bucket); !slice.is_same(owned_[bucket].master))
      slice.copy_(owned_[bucket].master);
  torn_ = false;
}

double ShardedOptimizer::squared_norm(const std::set<std::string>& uncounted) const {
  double sum = 0;
  for (const BucketPlace& place : gradients_.places()) {
    if (uncounted.count(place.name) > 0) continue;
    const SlicePart part = gradients_.owned_part(place);
    if (part.size > 0)
      sum += sum_of_squares(gradients_.owned(place.bucket).narrow(0, part.in_slice, part.size));
  }
  return sum;
}

void ShardedOptimizer::update(double grad_norm, int64_t total_steps) {
  const at::NoGradGuard no_grad;
  const double lr = next_rate(total_steps);
  UpdateParts parts;
  for (const BucketPlace& place : gradients_.places()) {
    const SlicePart part = gradients_.owned_part(place);
    if (part.size == 0) continue;
    const auto cut = [&](const at::Tensor& whole) {
      return whole.narrow(0, part.in_slice, part.size);
    };
    const Owned& owned = owned_[place.bucket];
    UpdateTensors& tensors = decays(config_, place.parameter) ? parts.decayed : parts.spared;
    tensors.weights.push_back(master(place, part));
    tensors.gradients.push_back(cut(gradients_.owned(place.bucket)));
    if (!has_moments(config_)) continue;
    tensors.exp_avgs.push_back(cut(owned.exp_avg));
    tensors.exp_avg_sqs.push_back(cut(owned.exp_avg_sq));
  }
  torn_ = true;
  ++step_;
  apply_update(config_, {step_, lr, grad_norm}, std::move(parts));
  if (shards_ != nullptr) refresh_slices();
}

bool ShardedOptimizer::gathers() const {
  return group_ != nullptr && group_->size() > 1 && gradients_.sharded();
}

Result<at::Tensor> ShardedOptimizer::gather(size_t bucket, const at::Tensor& own) const {
  if (!gathers()) return own;
  at::Tensor whole = at::empty({own.numel() * group_->size()}, own.options());
  BRAID_TRY(group_->all_gather(whole, own, cat("weights, bucket ", bucket)).wait());
  return whole;
}

Status ShardedOptimizer::gather_weights() {
  const at::NoGradGuard no_grad;
  if (shards_ != nullptr) {
    refresh_slices();
    return {};
  }
  const bool there = masters_are_parameters() && !gathers();
  for (size_t bucket = 0; !there && bucket < owned_.size(); ++bucket) {
    BRAID_ASSIGN(const at::Tensor whole, gather(bucket, own_weights(bucket)));
    for (const BucketPlace& place : gradients_.places())
      if (place.bucket == bucket)
        place.parameter.detach().copy_(
            whole.narrow(0, place.begin, place.parameter.numel()).view(place.parameter.sizes()));
  }
  torn_ = false;
  return {};
}

// A bucket's slice in the weights' dtype, the whole of it, and on the host what the collective
// takes; there the one before may not be gone yet, which a thread of its own lets go.
int64_t ShardedOptimizer::update_bytes() const {
  if (shards_ != nullptr || gradients_.places().empty()) return 0;
  if (masters_are_parameters() && !gathers()) return 0;
  const at::Tensor& parameter = gradients_.places()[0].parameter;
  const int64_t wholes = !gathers() ? 0 : parameter.is_cpu() ? 2 : 1;
  int64_t most = 0;
  for (size_t bucket = 0; bucket < owned_.size(); ++bucket)
    most =
        std::max(most, gradients_.owned_size(bucket) + wholes * gradients_.layout().padded(bucket));
  const bool two = gathers() && parameter.is_cpu() && owned_.size() > 1;
  return (two ? 2 : 1) * most * static_cast<int64_t>(parameter.element_size());
}

std::vector<at::Tensor> ShardedOptimizer::tensors() const {
  std::vector<at::Tensor> out;
  for (size_t bucket = 0; bucket < owned_.size(); ++bucket) {
    const Owned& owned = owned_[bucket];
    const bool elsewhere = !owned.master.defined() ||
                           (shards_ != nullptr && shards_->slice(bucket).is_same(owned.master));
    if (!elsewhere) out.push_back(owned.master);
    for (const at::Tensor& moment : {owned.exp_avg, owned.exp_avg_sq})
      if (moment.defined()) out.push_back(moment);
  }
  return out;
}

std::vector<std::pair<std::string, ShardedOptimizer::StatePart>> ShardedOptimizer::saved_parts()
    const {
  std::vector<std::pair<std::string, StatePart>> out;
  if (has_moments(config_)) {
    out.emplace_back("exp_avg", &Owned::exp_avg);
    out.emplace_back("exp_avg_sq", &Owned::exp_avg_sq);
  }
  const auto& places = gradients_.places();  // none on ranks below all adapters
  if (!places.empty() && places[0].parameter.scalar_type() != at::kFloat)
    out.emplace_back("master", &Owned::master);
  return out;
}

std::vector<StateSlice> ShardedOptimizer::slices() const {
  std::vector<StateSlice> out;
  for (const BucketPlace& place : gradients_.places()) {
    const SlicePart part = gradients_.owned_part(place);
    if (part.size == 0) continue;
    for (const auto& [state, member] : saved_parts())
      out.push_back({place.name, state, part.in_parameter,
                     (owned_[place.bucket].*member).narrow(0, part.in_slice, part.size)});
  }
  return out;
}

// Masters of f32 weights are these, or the same memory as their slices.
Status ShardedOptimizer::take_over(int64_t updates) {
  step_ = updates;
  return gather_weights();
}

}  // namespace braid::inline train

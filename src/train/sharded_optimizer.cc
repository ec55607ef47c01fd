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

Result<at::Tensor> ShardedOptimizer::gather(size_t bucket, const at::Tensor& own,
                                            const std::string& what) const {
  if (!gathers()) return own;
  at::Tensor whole = at::empty({own.numel() * group_->size()}, own.options());
  BRAID_TRY(group_->all_gather(whole, own, cat(what, ", bucket ", bucket)).wait());
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
    BRAID_ASSIGN(const at::Tensor whole, gather(bucket, own_weights(bucket), "weights"));
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

std::vector<std::string> ShardedOptimizer::state_names() const {
  std::vector<std::string> out;
  for (const BucketPlace& place : gradients_.places())
    for (const auto& [state, part] : saved_parts()) out.push_back(cat(place.name, ".", state));
  out.emplace_back("step");
  return out;
}

Result<OptimizerState> ShardedOptimizer::state(bool wanted) const {
  const at::NoGradGuard no_grad;
  OptimizerState out;
  for (const auto& [state, part] : saved_parts())
    for (size_t bucket = 0; bucket < owned_.size(); ++bucket) {
      BRAID_ASSIGN(const at::Tensor whole, gather(bucket, owned_[bucket].*part, state));
      for (const BucketPlace& place : gradients_.places())
        if (wanted && place.bucket == bucket)
          out.emplace_back(
              cat(place.name, ".", state),
              whole.narrow(0, place.begin, place.parameter.numel()).view(place.parameter.sizes()));
    }
  out.emplace_back("step", at::tensor(step_, at::kLong));
  return out;
}

Status ShardedOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  OptimizerState expected = {{"step", at::tensor(step_, at::kLong)}};
  for (const BucketPlace& place : gradients_.places())
    for (const auto& [name, part] : saved_parts())
      expected.emplace_back(cat(place.name, ".", name),
                            at::empty({1}, place.parameter.options().dtype(at::kFloat))
                                .expand(place.parameter.sizes()));
  BRAID_TRY(check_state(expected, state));
  for (const BucketPlace& place : gradients_.places()) {
    const SlicePart part = gradients_.owned_part(place);
    if (part.size == 0) continue;
    const bool f32 = place.parameter.scalar_type() == at::kFloat;
    const auto take = [&](at::Tensor& to, const at::Tensor& whole) {
      to.narrow(0, part.in_slice, part.size)
          .copy_(whole.flatten().narrow(0, part.in_parameter, part.size));
    };
    Owned& owned = owned_[place.bucket];
    if (f32 && owned.master.defined()) take(owned.master, place.parameter.detach());
    for (const auto& [name, member] : saved_parts())
      take(owned.*member, state.at(cat(place.name, ".", name)));
  }
  step_ = state.at("step").item<int64_t>();
  return gather_weights();
}

std::vector<StateSlice> ShardedOptimizer::slices() const {
  std::vector<StateSlice> out;
  for (const BucketPlace& place : gradients_.places()) {
    const SlicePart part = gradients_.owned_part(place);
    if (part.size == 0) continue;
    const Owned& owned = owned_[place.bucket];
    const auto add = [&](const char* state, const at::Tensor& values) {
      out.push_back({place.name, state, part.in_parameter, values});
    };
    add("master", master(place, part));
    if (!has_moments(config_)) continue;
    add("exp_avg", owned.exp_avg.narrow(0, part.in_slice, part.size));
    add("exp_avg_sq", owned.exp_avg_sq.narrow(0, part.in_slice, part.size));
  }
  return out;
}

}  // namespace braid::inline train

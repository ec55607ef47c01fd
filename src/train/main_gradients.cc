#include "train/main_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/text.h"

namespace braid {

// Called by autograd when a parameter's gradient of one backward is complete.
struct MainGradients::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(MainGradients* owner, size_t place) : owner(owner), place(place) {}
  void operator()(const torch::autograd::Variable&) override { owner->take_gradient(place); }
  MainGradients* owner;
  size_t place;
};

MainGradients::MainGradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                             Communicator* group, const MainGradientOptions& options)
    : group_(group), options_(options) {
  const int64_t ranks = group_ == nullptr ? 1 : group_->size();
  std::vector<int64_t> sizes;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (sizes.empty() || sizes.back() + it->second.numel() > options_.bucket_elements)
      if (sizes.empty() || sizes.back() > 0) sizes.push_back(0);
    places_.push_back({it->first, it->second, sizes.size() - 1, sizes.back()});
    sizes.back() += it->second.numel();
  }
  buckets_.resize(sizes.size());
  for (const GradientPlace& place : places_) ++buckets_[place.bucket].parameters;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t padded = (sizes[i] + ranks - 1) / ranks * ranks;
    const auto options_f32 = places_[0].parameter.options().dtype(at::kFloat).requires_grad(false);
    buckets_[i].sums = at::zeros({padded}, options_f32);
    if (options_.sharded && ranks > 1) buckets_[i].slice = at::empty({padded / ranks}, options_f32);
  }
  for (size_t i = 0; i < places_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(places_[i].parameter,
                                                   std::make_unique<Hook>(this, i));
}

MainGradients::~MainGradients() {
  for (const GradientPlace& place : places_)
    torch::autograd::impl::set_post_acc_grad_hooks(place.parameter, nullptr);
}

void MainGradients::zero() {
  for (Bucket& bucket : buckets_) bucket.sums.zero_();
  last_ = false;
  next_ = 0;
}

void MainGradients::last_backward_follows() {
  last_ = true;
  for (Bucket& bucket : buckets_) bucket.waiting = bucket.parameters;
}

void MainGradients::take_gradient(size_t index) {
  const at::NoGradGuard no_grad;
  const GradientPlace& place = places_[index];
  gradient(place).add_(place.parameter.grad());
  place.parameter.mutable_grad().reset();
  --buckets_[place.bucket].waiting;
  // In one order on all ranks, whatever their backwards leave out.
  while (last_ && next_ < buckets_.size() && buckets_[next_].waiting == 0) start(next_++);
}

void MainGradients::start(size_t index) {
  if (group_ == nullptr || group_->size() == 1) return;
  Bucket& bucket = buckets_[index];
  const std::string name = cat("gradients, bucket ", index);
  bucket.pending = bucket.slice.defined() ? group_->reduce_scatter(bucket.slice, bucket.sums, name)
                                          : group_->all_reduce(bucket.sums, Reduce::kSum, name);
}

Status MainGradients::finish() {
  while (next_ < buckets_.size()) start(next_++);
  for (Bucket& bucket : buckets_) BRAID_TRY(bucket.pending.wait());
  last_ = false;
  return {};
}

int64_t MainGradients::owned_size(size_t bucket) const {
  const Bucket& of = buckets_[bucket];
  return of.slice.defined() ? of.slice.numel() : of.sums.numel();
}

int64_t MainGradients::owned_begin(size_t bucket) const {
  return buckets_[bucket].slice.defined() ? owned_size(bucket) * group_->index() : 0;
}

at::Tensor MainGradients::owned(size_t bucket) const {
  const Bucket& of = buckets_[bucket];
  return of.slice.defined() ? of.slice : of.sums;
}

at::Tensor MainGradients::gradient(const std::string& name) const {
  for (const GradientPlace& place : places_)
    if (place.name == name) return gradient(place);
  BRAID_CHECK(false, "no gradient of " + name);
}

at::Tensor MainGradients::gradient(const GradientPlace& place) const {
  return buckets_[place.bucket]
      .sums.narrow(0, place.begin, place.parameter.numel())
      .view(place.parameter.sizes());
}

}  // namespace braid

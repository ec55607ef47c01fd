#include "train/main_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "base/text.h"
#include "host/progress.h"

namespace braid::inline train {
namespace {

// Buckets of one backward that may be under way: more of them need more memory.
constexpr size_t kUnderWay = 2;

}  // namespace

// Called by autograd when a parameter's gradient of one backward is complete.
struct MainGradients::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(MainGradients* owner, size_t place) : owner(owner), place(place) {}
  void operator()(const torch::autograd::Variable&) override { owner->take_gradient(place); }
  MainGradients* owner;
  size_t place;
};

MainGradients::MainGradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                             Communicator* group, const MainGradientOptions& options)
    : group_(group),
      options_(options),
      layout_(parameters, group == nullptr ? 1 : group->size(), options.buckets),
      buckets_(layout_.size()) {
  const bool several = layout_.ranks() > 1;
  options_.each_backward = options_.each_backward && options_.sharded && several;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!options_.each_backward) buckets_[i].sums = zeros(layout_.padded(i));
    if (!options_.sharded || !several) continue;
    const int64_t size = layout_.slice_size(i);
    buckets_[i].slice = options_.each_backward
                            ? zeros(size)
                            : buckets_[i].sums.narrow(0, size * group_->index(), size);
  }
  list_buckets({});
  for (size_t i = 0; i < places().size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(places()[i].parameter,
                                                   std::make_unique<Hook>(this, i));
}

MainGradients::~MainGradients() {
  for (const BucketPlace& place : places())
    torch::autograd::impl::set_post_acc_grad_hooks(place.parameter, nullptr);
}

at::Tensor MainGradients::zeros(int64_t elements) const {
  return at::zeros({elements},
                   places()[0].parameter.options().dtype(at::kFloat).requires_grad(false));
}

void MainGradients::zero() {
  // Where a backward ended early, a parameter may have what no bucket has taken.
  for (const BucketPlace& place : places()) place.parameter.mutable_grad().reset();
  for (Bucket& bucket : buckets_) {
    bucket.added.reset();
    if (options_.each_backward) bucket.sums.reset();
    for (const at::Tensor& kept : {bucket.slice, bucket.sums})
      if (kept.defined()) kept.zero_();
  }
  reduces_ = false;
  list_buckets({});
}

void MainGradients::scale(double factor) {
  const at::NoGradGuard no_grad;
  for (Bucket& bucket : buckets_) {
    // Without each_backward a slice is a part of the sums.
    const at::Tensor& kept = options_.each_backward ? bucket.slice : bucket.sums;
    if (kept.defined()) kept.mul_(factor);
  }
}

void MainGradients::list_buckets(const std::function<bool(int64_t number)>& wanted) {
  order_.clear();
  next_ = settled_ = 0;
  for (size_t i = 0; i < buckets_.size(); ++i)
    if (!wanted || wanted(layout_.number(i))) order_.push_back(i);
}

void MainGradients::reduced_backward_follows(
    const std::function<bool(int64_t number)>& in_backward) {
  reduces_ = true;
  list_buckets(in_backward);
  for (const size_t bucket : order_) buckets_[bucket].waiting = layout_.tensors(bucket);
}

void MainGradients::take_gradient(size_t index) {
  note_progress();  // a backward is one call
  const at::NoGradGuard no_grad;
  const BucketPlace& place = places()[index];
  Bucket& bucket = buckets_[place.bucket];
  if (!bucket.sums.defined()) bucket.sums = zeros(layout_.padded(place.bucket));
  in_bucket(place).add_(place.parameter.grad());
  place.parameter.mutable_grad().reset();
  --bucket.waiting;
  // In one order on all ranks, whatever their backwards leave out.
  while (reduces_ && next_ < order_.size() && buckets_[order_[next_]].waiting == 0) {
    start_next();
    if (!options_.sharded || next_ <= kUnderWay) continue;
    if (const Status settled = settle(next_ - kUnderWay); !settled.ok())
      throw CommunicationFailure(settled);
  }
}

void MainGradients::start_from(int64_t number) {
  if (!reduces_) return;
  while (next_ < order_.size() && layout_.number(order_[next_]) >= number) start_next();
}

// A bucket counts as started once it is: where its memory is not there, it comes again.
void MainGradients::start_next() {
  start(order_[next_]);
  ++next_;
}

void MainGradients::start(size_t index) {
  if (layout_.ranks() == 1) return;
  Bucket& bucket = buckets_[index];
  const std::string name = cat("gradients, bucket ", index);
  if (!bucket.slice.defined()) {
    bucket.pending = group_->all_reduce(bucket.sums, Reduce::kSum, name);
    return;
  }
  if (!bucket.sums.defined()) bucket.sums = zeros(layout_.padded(index));
  bucket.added = at::empty_like(bucket.slice);
  bucket.pending = group_->reduce_scatter(bucket.added, bucket.sums, name);
}

// Completes the first reductions of the open backward.
Status MainGradients::settle(size_t before) {
  for (; settled_ < before; ++settled_) {
    Bucket& bucket = buckets_[order_[settled_]];
    BRAID_TRY(bucket.pending.wait());
    if (!bucket.added.defined()) continue;
    if (options_.each_backward) {
      bucket.slice.add_(bucket.added);
      bucket.sums.reset();
    } else {
      bucket.slice.copy_(bucket.added);
    }
    bucket.added.reset();
  }
  return {};
}

Status MainGradients::finish() {
  while (next_ < order_.size()) start_next();
  BRAID_TRY(settle(order_.size()));
  reduces_ = false;
  return {};
}

Status MainGradients::sum_owned(Communicator& group) {
  std::vector<Pending> pending;
  for (size_t i = 0; i < buckets_.size(); ++i)
    pending.push_back(group.all_reduce(owned(i), Reduce::kSum, cat("owned gradients, bucket ", i)));
  for (Pending& each : pending) BRAID_TRY(each.wait());
  return {};
}

int64_t MainGradients::bytes() const {
  int64_t out = 0;
  for (const Bucket& bucket : buckets_)
    for (const at::Tensor& tensor : {bucket.sums, bucket.slice})
      if (tensor.defined()) out += static_cast<int64_t>(tensor.nbytes());
  return out;
}

int64_t MainGradients::owned_size(size_t bucket) const {
  return buckets_[bucket].slice.defined() ? layout_.slice_size(bucket) : layout_.padded(bucket);
}

int64_t MainGradients::owned_begin(size_t bucket) const {
  return buckets_[bucket].slice.defined() ? owned_size(bucket) * group_->index() : 0;
}

at::Tensor MainGradients::owned(size_t bucket) const {
  const Bucket& of = buckets_[bucket];
  return of.slice.defined() ? of.slice : of.sums;
}

at::Tensor MainGradients::gradient(const std::string& name) const {
  for (const BucketPlace& place : places()) {
    if (place.name != name) continue;
    if (!options_.each_backward) return gradient(place);
    const SlicePart part = owned_part(place);
    return owned(place.bucket).narrow(0, part.in_slice, part.size);
  }
  BRAID_CHECK(false, "no gradient of " + name);
}

at::Tensor MainGradients::in_bucket(const BucketPlace& place) const {
  return buckets_[place.bucket]
      .sums.narrow(0, place.begin, place.parameter.numel())
      .view(place.parameter.sizes());
}

at::Tensor MainGradients::gradient(const BucketPlace& place) const {
  BRAID_CHECK(!options_.each_backward, "only slices of the gradients are kept");
  return in_bucket(place);
}

}  // namespace braid::inline train

#include "train/reduce_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "base/text.h"

namespace braid {
namespace {

// Large enough that latency does not count, small enough that copies stay beside the network.
constexpr int64_t kBucketElements = 4 << 20;

using Named = std::pair<std::string, at::Tensor>;

at::Tensor gradient_of(const at::Tensor& parameter) {
  at::Tensor leaf = parameter;
  if (!leaf.grad().defined()) leaf.mutable_grad() = at::zeros_like(leaf);
  return leaf.grad();
}

struct Bucket {
  at::Tensor values;
  std::vector<at::Tensor> gradients;
};

Bucket pack(const std::vector<Named>& parameters, size_t begin, size_t end) {
  Bucket bucket;
  int64_t elements = 0;
  for (size_t i = begin; i < end; ++i) elements += parameters[i].second.numel();
  bucket.values = at::empty({elements}, at::kFloat);
  int64_t at_element = 0;
  for (size_t i = begin; i < end; ++i) {
    bucket.gradients.push_back(gradient_of(parameters[i].second));
    const int64_t count = parameters[i].second.numel();
    bucket.values.narrow(0, at_element, count).copy_(bucket.gradients.back().reshape({-1}));
    at_element += count;
  }
  return bucket;
}

void unpack(const Bucket& bucket) {
  int64_t at_element = 0;
  for (const at::Tensor& gradient : bucket.gradients) {
    const at::Tensor part = bucket.values.narrow(0, at_element, gradient.numel());
    gradient.copy_(part.view(gradient.sizes()));
    at_element += gradient.numel();
  }
}

}  // namespace

Status sum_gradients(const std::vector<Named>& parameters, Communicator& group) {
  std::vector<Bucket> buckets;
  std::vector<Pending> started;
  for (size_t begin = 0; begin < parameters.size();) {
    size_t end = begin;
    for (int64_t elements = 0; end < parameters.size() && elements < kBucketElements; ++end)
      elements += parameters[end].second.numel();
    buckets.push_back(pack(parameters, begin, end));
    started.push_back(group.all_reduce(
        buckets.back().values, Reduce::kSum,
        cat("gradients of ", parameters[begin].first, " to ", parameters[end - 1].first)));
    begin = end;
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    BRAID_TRY(started[i].wait());
    unpack(buckets[i]);
  }
  return ok_status();
}

}  // namespace braid

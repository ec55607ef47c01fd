// Gradients of a set of parameters in f32, whatever the weights' dtype: sums over micro-batches and
// over data-parallel ranks do not round to bf16. They lie in buckets, in the order in which a
// backward is likely to finish them (the reverse of the parameters'), and a bucket's reduction
// starts as soon as the last backward has filled it, beside the rest of that backward. Sharded
// (ZeRO-1, Rajbhandari et al., 2020, §5.1), each rank gets the sum of its slice of every bucket
// alone. Not thread-safe. Parameters must outlive the object and keep requiring gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace braid {

struct MainGradientOptions {
  int64_t bucket_elements = 8 << 20;  // a parameter is never cut; changes speed alone
  bool sharded = false;               // each rank keeps the sum of its slice
};

// Where a parameter lies: elements [begin, begin + parameter.numel()) of a bucket.
struct GradientPlace {
  std::string name;
  at::Tensor parameter;
  size_t bucket = 0;
  int64_t begin = 0;
};

class MainGradients {
 public:
  // `group`: data-parallel ranks, all with equal parameters; null for one.
  MainGradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                Communicator* group, const MainGradientOptions& options);
  ~MainGradients();
  MainGradients(const MainGradients&) = delete;
  MainGradients& operator=(const MainGradients&) = delete;

  // Before the backwards of an optimizer step.
  void zero();
  // Before the step's last backward: buckets are reduced as they fill.
  void last_backward_follows();
  // After the last backward: starts what has not started (parameters that got no gradient count as
  // zero) and waits. Without last_backward_follows() everything is reduced here.
  Status finish();

  bool sharded() const { return options_.sharded; }
  const std::vector<GradientPlace>& places() const { return places_; }
  size_t buckets() const { return buckets_.size(); }
  // The elements of a bucket whose sum this rank has after finish(): all, or its slice when
  // sharded.
  int64_t owned_begin(size_t bucket) const;
  int64_t owned_size(size_t bucket) const;
  // f32 [owned_size]: the sum. Valid until zero().
  at::Tensor owned(size_t bucket) const;
  // The f32 gradient of one parameter in its shape. REQUIRES: not sharded.
  at::Tensor gradient(const GradientPlace& place) const;
  // Of the parameter of this name. REQUIRES: there is one.
  at::Tensor gradient(const std::string& name) const;

 private:
  struct Bucket {
    at::Tensor sums;   // f32, padded to a multiple of the ranks
    at::Tensor slice;  // sharded: this rank's sum
    int64_t parameters = 0;
    int64_t waiting = 0;  // parameters whose gradient the last backward has still to add
    Pending pending;
  };
  struct Hook;

  void take_gradient(size_t place);
  void start(size_t index);

  Communicator* group_;
  MainGradientOptions options_;
  std::vector<GradientPlace> places_;
  std::vector<Bucket> buckets_;
  bool last_ = false;
  size_t next_ = 0;  // bucket whose reduction is to be started
};

}  // namespace braid

// Gradients of a set of parameters in f32, whatever the weights' dtype: sums over micro-batches and
// over data-parallel ranks do not round to bf16. They lie in buckets (train/flat_buckets.h), and a
// bucket's reduction starts as soon as a backward has filled it, beside the rest of that backward.
// Not thread-safe. Parameters must outlive the object and keep requiring gradients.
//
// Sharded (ZeRO, Rajbhandari et al., 2020, §5), each rank gets the sum of its slice of every bucket
// alone: after the last backward of an optimizer step (ZeRO-1), or after each one (ZeRO-2), between
// which only the slices exist then.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "train/flat_buckets.h"

namespace braid::inline train {

struct MainGradientOptions {
  BucketOptions buckets = {};
  bool sharded = false;        // each rank keeps the sum of its slice
  bool each_backward = false;  // of sharded ones: reduced in every backward; all ranks have as many
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
  // Multiplies what was added up since, where no reduction is under way.
  void scale(double factor);
  // Before the step's last backward, or before every one: buckets are reduced as they fill, those
  // of numbers that `in_backward` accepts (BucketOptions::apart); all where it is empty.
  void reduced_backward_follows(const std::function<bool(int64_t number)>& in_backward = {});
  // After such a backward, or one that this rank leaves out: starts which of its buckets have not
  // started (parameters that got no gradient count as zero) and waits.
  Status finish();
  // Of such a backward that this rank leaves out: starts, as the others do, the next buckets whose
  // numbers are not below this one. Nothing where no such backward is open.
  void start_from(int64_t number);

  // Adds what the ranks of a group, all of which own the same, have; after finish().
  Status sum_owned(Communicator& group);

  bool sharded() const { return options_.sharded; }
  bool each_backward() const { return options_.each_backward; }
  const FlatBuckets& layout() const { return layout_; }
  const std::vector<BucketPlace>& places() const { return layout_.places(); }
  size_t buckets() const { return buckets_.size(); }
  // Of what it holds.
  int64_t bytes() const;
  // The elements of a bucket whose sum this rank has after finish(): all, or its slice when
  // sharded.
  int64_t owned_begin(size_t bucket) const;
  int64_t owned_size(size_t bucket) const;
  // f32 [owned_size]: the sum. Valid until zero().
  at::Tensor owned(size_t bucket) const;
  // What of a parameter is in the owned elements of its bucket.
  SlicePart owned_part(const BucketPlace& place) const {
    return FlatBuckets::part_of(place, owned_begin(place.bucket), owned_size(place.bucket));
  }
  // The f32 gradient of one parameter in its shape. REQUIRES: not each_backward.
  at::Tensor gradient(const BucketPlace& place) const;
  // Of the parameter of this name; with each_backward the owned part of it [size], where ranks that
  // hold equal parameters of its number own equal parts. REQUIRES: there is one.
  at::Tensor gradient(const std::string& name) const;

 private:
  struct Bucket {
    at::Tensor sums;   // f32, padded to a multiple of the ranks; each_backward: while it is filled
    at::Tensor slice;  // sharded: this rank's sum; without each_backward a part of `sums`
    at::Tensor added;  // sharded: of the backward that is being reduced
    int64_t waiting = 0;  // parameters whose gradient the backward has still to add
    Pending pending;
  };
  struct Hook;

  void take_gradient(size_t place);
  at::Tensor in_bucket(const BucketPlace& place) const;
  at::Tensor zeros(int64_t elements) const;
  void list_buckets(const std::function<bool(int64_t number)>& wanted);
  void start(size_t index);
  void start_next();
  Status settle(size_t before);

  Communicator* group_;
  MainGradientOptions options_;
  FlatBuckets layout_;
  std::vector<Bucket> buckets_;
  bool reduces_ = false;       // the open backward
  std::vector<size_t> order_;  // the buckets that it reduces; all before the first one
  size_t next_ = 0;            // of these: whose reduction is to be started
  size_t settled_ = 0;         // of these: how many reductions have ended
};

}  // namespace braid::inline train

// The optimizer under ZeRO (Rajbhandari et al., 2020, §5): f32 master weights and moments of the
// slices of MainGradients that this rank owns; the updated slices are gathered, or stay slices
// (ZeRO-3, train/weight_shards.h). Not thread-safe. Invariant: after the constructor,
// gather_weights() and take_over() every rank's parameters are the masters rounded to the
// parameters' dtype.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "config/options.h"
#include "train/main_gradients.h"
#include "train/optimizer.h"
#include "train/weight_shards.h"

namespace braid::inline train {

class ShardedOptimizer : public Optimizer {
 public:
  // `gradients`, `group` (data-parallel ranks; null for one) and `shards` must outlive the object.
  // `shards`: the weights as slices too, cut as the gradients are (null: they are whole), which
  // update() and take_over() keep up to date; those in f32 are the masters.
  ShardedOptimizer(MainGradients& gradients, Communicator* group, const OptimizerConfig& config,
                   WeightShards* shards = nullptr);

  // The square root of the sum over all ranks that own something is the global norm; without
  // sharding data-parallel ranks own the same.
  double squared_norm(const std::set<std::string>& uncounted) const override;
  double next_rate(int64_t total_steps) const override {
    return learning_rate(config_, step_, total_steps);
  }
  // Of the masters that this rank owns; the parameters follow in gather_weights().
  void update(double grad_norm, int64_t total_steps) override;
  // kUnavailable, kDeadline: another rank does not come.
  Status gather_weights() override;
  int64_t update_bytes() const override;
  bool torn() const override { return torn_; }
  void zero_grad() override { gradients_.zero(); }
  std::vector<at::Tensor> tensors() const override;
  std::vector<StateSlice> slices() const override;
  int64_t updates() const override { return step_; }
  Status take_over(int64_t updates) override;

 private:
  struct Owned {
    at::Tensor exp_avg, exp_avg_sq;  // f32 [owned_size]
    at::Tensor master;               // likewise; undefined where the parameters are the masters
  };
  using StatePart = at::Tensor Owned::*;
  // The states that are saved, by their names: masters of f32 parameters are the parameters.
  std::vector<std::pair<std::string, StatePart>> saved_parts() const;
  // Weights of a bucket as a whole.
  Result<at::Tensor> gather(size_t bucket, const at::Tensor& own) const;

  // Whether slices are gathered from other ranks.
  bool gathers() const;
  // Whole parameters in f32: there the owned parts are updated in place.
  bool masters_are_parameters() const;
  at::Tensor first_master(size_t bucket) const;
  // The master of what this rank owns of a parameter.
  at::Tensor master(const BucketPlace& place, const SlicePart& part) const;
  // Of a bucket, in the parameters' dtype [owned_size].
  at::Tensor own_weights(size_t bucket) const;
  void refresh_slices();

  MainGradients& gradients_;

  Communicator* group_;
  WeightShards* shards_ = nullptr;
  OptimizerConfig config_;
  std::vector<Owned> owned_;  // by bucket
  int64_t step_ = 0;
  bool torn_ = false;
};

}  // namespace braid::inline train

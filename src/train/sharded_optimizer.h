// The optimizer over MainGradients: f32 master weights and moments of the slices that this rank
// owns, which is everything, or 1/dp of it under ZeRO-1 (Rajbhandari et al., 2020, §5.1): then the
// updated slices are gathered. Not thread-safe.
// Invariant: after the constructor, step() and load_slice() every rank's parameters are the masters
// rounded to the parameters' dtype.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "config/options.h"
#include "train/main_gradients.h"

namespace braid {

// Part of a parameter's optimizer state: elements [begin, begin + values.numel()) of the parameter
// in its own order.
struct StateSlice {
  std::string name;   // of the parameter
  std::string state;  // "master", "exp_avg", "exp_avg_sq"
  int64_t begin = 0;
  at::Tensor values;  // f32; aliases the optimizer's own
};

class ShardedOptimizer {
 public:
  // `gradients` and `group` (data-parallel ranks; null for one) must outlive the object.
  ShardedOptimizer(MainGradients& gradients, Communicator* group, const OptimizerConfig& config);

  // Sum of the squares of the gradients that this rank owns, without the parameters of
  // `not_counted` (replicas that another rank counts), in f64. The square root of the sum over all
  // ranks that own something is the global norm; without sharding data-parallel ranks own the same.
  double owned_squares(const std::set<std::string>& not_counted) const;

  struct Report {
    double lr = 0;
    bool applied = false;  // false when the norm is not finite: nothing changed
  };
  // One update with the global norm that all ranks agreed on. kUnavailable, kDeadline: the
  // gathering of the weights failed.
  Result<Report> step(int64_t total_steps, double grad_norm);

  int64_t steps() const { return step_; }
  void set_steps(int64_t steps) { step_ = steps; }
  // What this rank owns, parameter by parameter.
  std::vector<StateSlice> state() const;
  // After the values of state() were changed from outside: takes the masters over into parameters.
  Status publish();

 private:
  struct Owned {
    at::Tensor master, exp_avg, exp_avg_sq;  // f32 [owned_size]
  };

  MainGradients& gradients_;
  Communicator* group_;
  OptimizerConfig config_;
  std::vector<Owned> owned_;  // by bucket
  int64_t step_ = 0;
};

}  // namespace braid

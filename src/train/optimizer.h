// AdamW (or plain gradient descent) over a model's parameters, with gradient clipping and
// learning-rate schedules. Not thread-safe; libtorch's threads are used inside. For a fixed thread
// count results are bitwise reproducible; the gradient norm on the CPU does not depend on it at
// all.
// Invariant: masters are f32; a parameter of another type is always its master rounded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/options.h"
#include "train/main_gradients.h"

namespace braid {

// Rejects an unknown schedule and numbers out of range; `key` ("optim.actor") is named in the
// error.
Status validate(const OptimizerConfig& config, const std::string& key);

// The rate of optimizer step `step` (from 0): it rises linearly over warmup_steps, the first step
// having lr / warmup_steps; then constant, or falls along a line or half a cosine
// (Loshchilov & Hutter, 2017) to lr * min_lr_ratio at total_steps and stays there.
// REQUIRES: validate(config) is ok.
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t total_steps);

// In f64. On the CPU in fixed blocks, so that it does not depend on the threads.
double sum_of_squares(const at::Tensor& gradient_f32);

class AdamW {
 public:
  // Parameters are updated in place: f32 ones directly, others (bf16) through f32 masters.
  AdamW(std::vector<std::pair<std::string, at::Tensor>> parameters, const OptimizerConfig& config);

  // Takes gradients from here instead of from the parameters' own: f32 sums over micro-batches and
  // ranks. REQUIRES: they are of the same parameters, not sharded, and outlive this.
  void use(MainGradients* gradients);

  struct StepReport {
    double grad_norm = 0;  // global L2 norm before clipping
    double lr = 0;
    bool applied = false;  // false when the norm is not finite: nothing but the gradients changed
  };

  // gradient_norm(), update() where it is finite, zero_grad().
  StepReport step(int64_t total_steps);

  // L2 norm of the accumulated gradients.
  double gradient_norm() const;
  // Its square, in f64, without the parameters that another rank counts.
  double squared_norm(const std::set<std::string>& uncounted) const;

  // The rate of the next update.
  double next_rate(int64_t total_steps) const { return learning_rate(config_, step_, total_steps); }

  // One update from the accumulated gradients, whose global norm is grad_norm, scaled down to a
  // norm of max_grad_norm (Pascanu et al., 2013); decoupled weight decay (Loshchilov & Hutter,
  // 2019, algorithm 2). A parameter without a gradient stays as it is. REQUIRES: grad_norm is
  // finite.
  void update(double grad_norm, int64_t total_steps);

  // An exception left an update half applied: parameters and state are those of no step.
  bool torn() const { return torn_; }

  void zero_grad();

  // "NAME.exp_avg", "NAME.exp_avg_sq" for each parameter (adamw), "NAME.master" for those not in
  // f32, and "step". The tensors alias the optimizer's own.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

  // Takes over what state() gave; later steps are bitwise those of the saved optimizer. A missing,
  // extra or misshapen entry is an error that names it, and nothing is changed then.
  Status load_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct Slot {
    std::string name;
    at::Tensor parameter, master, exp_avg, exp_avg_sq;
    bool has_master() const { return !master.is_same(parameter); }
  };
  // In f32; undefined where the parameter has none.
  at::Tensor gradient(size_t slot) const;

  OptimizerConfig config_;
  std::vector<Slot> slots_;
  MainGradients* gradients_ = nullptr;
  std::vector<const GradientPlace*> places_;  // of each slot in gradients_
  int64_t step_ = 0;                          // updates applied
  bool torn_ = false;
};

}  // namespace braid

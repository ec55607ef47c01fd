// Optimizers of a model's parameters, with gradient clipping and learning-rate schedules: the state
// of all of them here, or of a share of each (train/sharded_optimizer.h). Not thread-safe;
// libtorch's threads are used inside. For a fixed thread count results are bitwise reproducible;
// the gradient norm on the CPU does not depend on it at all. Invariant: masters are f32; a
// parameter of another type is always its master rounded.
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

namespace braid::inline train {

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

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Of the accumulated gradients that this rank has the state of: the sum of their squares, in f64,
  // without the parameters that another rank counts.
  virtual double squared_norm(const std::set<std::string>& uncounted) const = 0;
  // The rate of the next update.
  virtual double next_rate(int64_t total_steps) const = 0;

  // One update from the accumulated gradients, whose global norm is grad_norm, scaled down to a
  // norm of max_grad_norm (Pascanu et al., 2013); decoupled weight decay (Loshchilov & Hutter,
  // 2019, algorithm 2). A parameter without a gradient stays as it is. REQUIRES: grad_norm is
  // finite.
  virtual void update(double grad_norm, int64_t total_steps) = 0;
  // Brings what other ranks have updated into the parameters; nothing where none did.
  virtual Status gather_weights() { return {}; }
  // The most bytes that update() and gather_weights() take beside what is there, and give back.
  virtual int64_t update_bytes() const = 0;
  // An exception left an update half applied: parameters and state are those of no step.
  virtual bool torn() const = 0;
  virtual void zero_grad() = 0;

  // What it holds beside the weights (or slices of them) themselves.
  virtual std::vector<at::Tensor> tensors() const = 0;

  // What of the state a checkpoint keeps, as far as this rank has it, parameter by parameter:
  // "exp_avg" and "exp_avg_sq" (adamw), "master" of weights that are not f32. The values alias the
  // optimizer's own.
  virtual std::vector<StateSlice> slices() const = 0;
  // Updates applied.
  virtual int64_t updates() const = 0;
  // After the values of slices() and of the weights were replaced by saved ones: later updates are
  // bitwise those of the optimizer that had them. Ranks that share state call it together.
  virtual Status take_over(int64_t updates) = 0;
};

// All of the state. adamw, or sgd: plain gradient descent.
class AdamW : public Optimizer {
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
  double squared_norm(const std::set<std::string>& uncounted) const override;
  double next_rate(int64_t total_steps) const override {
    return learning_rate(config_, step_, total_steps);
  }
  void update(double grad_norm, int64_t total_steps) override;
  int64_t update_bytes() const override;
  bool torn() const override { return torn_; }
  void zero_grad() override;
  std::vector<at::Tensor> tensors() const override;
  std::vector<StateSlice> slices() const override;
  int64_t updates() const override { return step_; }
  Status take_over(int64_t updates) override;

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
  std::vector<const BucketPlace*> places_;  // of each slot in gradients_
  int64_t step_ = 0;                        // updates applied
  bool torn_ = false;
};

}  // namespace braid::inline train

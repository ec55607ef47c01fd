#include "train/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "device/device_copy.h"
#include "train/update_rule.h"

namespace braid::inline train {

namespace {

// Of tensors of an accelerator, which answers once for all of them.
double sum_of_squares(const std::vector<at::Tensor>& norms) {
  if (norms.empty()) return 0;
  const at::Tensor all = to_host(at::stack(norms).to(at::kDouble));
  const auto* data = all.const_data_ptr<double>();
  return std::inner_product(data, data + all.numel(), data, 0.0);
}

}  // namespace

double sum_of_squares(const at::Tensor& gradient) {
  if (!gradient.is_cpu()) return std::pow(at::linalg_vector_norm(gradient).item<double>(), 2);
  constexpr int64_t kBlock = 1 << 15;
  const at::Tensor flat = gradient.contiguous();
  const float* data = flat.const_data_ptr<float>();
  const int64_t size = flat.numel();
  std::vector<double> sums((size + kBlock - 1) / kBlock);
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      double sum = 0;
      for (int64_t i = block * kBlock; i < std::min(size, (block + 1) * kBlock); ++i) {
        sum += static_cast<double>(data[i]) * data[i];
      }
      sums[block] = sum;
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

AdamW::AdamW(std::vector<std::pair<std::string, at::Tensor>> parameters,
             const OptimizerConfig& config)
    : config_(config) {
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : parameters) {
    const bool f32 = parameter.scalar_type() == at::kFloat;
    at::Tensor master = f32 ? parameter : parameter.detach().to(at::kFloat);
    at::Tensor exp_avg, exp_avg_sq;
    if (has_moments(config_)) {
      exp_avg = at::zeros_like(master.detach());
      exp_avg_sq = at::zeros_like(master.detach());
    }
    slots_.push_back({name, parameter, std::move(master), exp_avg, exp_avg_sq});
  }
}

void AdamW::use(MainGradients* gradients) {
  gradients_ = gradients;
  places_.clear();
  for (const Slot& slot : slots_)
    for (const BucketPlace& place : gradients->places())
      if (place.name == slot.name) places_.push_back(&place);
  BRAID_CHECK(places_.size() == slots_.size(), "gradients of other parameters");
}

at::Tensor AdamW::gradient(size_t slot) const {
  if (gradients_ != nullptr) return gradients_->gradient(*places_[slot]);
  const at::Tensor& own = slots_[slot].parameter.grad();
  return own.defined() ? own.to(at::kFloat) : own;
}

AdamW::StepReport AdamW::step(int64_t total_steps) {
  StepReport report{gradient_norm(), next_rate(total_steps), false};
  report.applied = std::isfinite(report.grad_norm);
  if (report.applied) update(report.grad_norm, total_steps);
  zero_grad();
  return report;
}

double AdamW::gradient_norm() const { return std::sqrt(squared_norm({})); }

double AdamW::squared_norm(const std::set<std::string>& uncounted) const {
  const at::NoGradGuard no_grad;
  double squares = 0;
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (uncounted.count(slots_[i].name) > 0) continue;
    const at::Tensor found = gradient(i);
    if (!found.defined()) continue;
    if (found.is_cpu())
      squares += sum_of_squares(found);
    else
      norms.push_back(at::linalg_vector_norm(found));
  }
  return squares + sum_of_squares(norms);
}

void AdamW::update(double grad_norm, int64_t total_steps) {
  const at::NoGradGuard no_grad;
  const double lr = next_rate(total_steps);
  UpdateParts parts;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const at::Tensor found = gradient(i);
    if (!found.defined()) continue;
    Slot& slot = slots_[i];
    UpdateTensors& tensors = decays(config_, slot.parameter) ? parts.decayed : parts.spared;
    tensors.weights.push_back(slot.master);
    tensors.gradients.push_back(found);
    if (!has_moments(config_)) continue;
    tensors.exp_avgs.push_back(slot.exp_avg);
    tensors.exp_avg_sqs.push_back(slot.exp_avg_sq);
  }
  torn_ = true;
  ++step_;
  apply_update(config_, {step_, lr, grad_norm}, std::move(parts));
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].has_master() && gradient(i).defined())
      slots_[i].parameter.copy_(slots_[i].master);
  torn_ = false;
}

int64_t AdamW::update_bytes() const {
  int64_t bytes = 0;  // gradients in f32
  for (const Slot& slot : slots_)
    if (gradients_ == nullptr && slot.has_master())
      bytes += static_cast<int64_t>(sizeof(float)) * slot.parameter.numel();
  return bytes;
}

void AdamW::zero_grad() {
  if (gradients_ != nullptr) gradients_->zero();
  for (Slot& slot : slots_) slot.parameter.mutable_grad().reset();
}

std::vector<at::Tensor> AdamW::tensors() const {
  std::vector<at::Tensor> out;
  for (const Slot& slot : slots_) {
    if (slot.has_master()) out.push_back(slot.master);
    for (const at::Tensor& moment : {slot.exp_avg, slot.exp_avg_sq})
      if (moment.defined()) out.push_back(moment);
  }
  return out;
}

std::vector<StateSlice> AdamW::slices() const {
  std::vector<StateSlice> out;
  for (const Slot& slot : slots_) {
    const auto add = [&](const char* state, const at::Tensor& values) {
      out.push_back({slot.name, state, 0, values.detach().view({-1})});
    };
    if (has_moments(config_)) {
      add("exp_avg", slot.exp_avg);
      add("exp_avg_sq", slot.exp_avg_sq);
    }
    if (slot.has_master()) add("master", slot.master);
  }
  return out;
}

Status AdamW::take_over(int64_t updates) {
  const at::NoGradGuard no_grad;
  step_ = updates;
  for (Slot& slot : slots_)
    if (slot.has_master()) slot.parameter.copy_(slot.master);
  return {};
}

}  // namespace braid::inline train

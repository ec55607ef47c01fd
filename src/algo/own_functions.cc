#include "algo/own_functions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>

#include "algo/batch.h"
#include "algo/own_loss.h"
#include "algo/policy_terms.h"
#include "algo/statistics.h"
#include "base/rng.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

constexpr const char* kBuild = "; build it again with 'braid build-loss'";
constexpr double kStep = 1e-6;       // of central differences
constexpr double kTolerance = 1e-6;  // of gradients, relative to 1 or their own size

// First words of Braid's metrics.
constexpr const char* kMetricGroups[] = {
    "adv",    "critic",  "data",     "distill",  "dpo",  "eval", "kl",
    "kto",    "length",  "memory",   "mismatch", "orpo", "perf", "policy",
    "reward", "rollout", "sampling", "sft",      "rm",   "step", "time",
};

// dlopen() searches other folders for a name without one.
std::string place_of(const std::string& path) {
  return path.find('/') == std::string::npos ? "./" + path : path;
}

template <typename Entry>
Result<const Entry*> open_entry(const std::string& path, const char* symbol, const char* macro) {
  void* const library = ::dlopen(place_of(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_found(cat(path, ": ", ::dlerror(), kBuild));
  const auto* entry = static_cast<const Entry*>(::dlsym(library, symbol));
  if (entry == nullptr) return invalid_input(cat(path, ": its source has no ", macro));
  if (entry->version != kOwnLossVersion)
    return invalid_input(cat(path, " was built for another version of Braid", kBuild));
  if (std::string(entry->torch) != TORCH_VERSION)
    return invalid_input(cat(path, " was built with libtorch ", entry->torch, ", Braid with ",
                             TORCH_VERSION, kBuild));
  return entry;
}

// What a function of the library throws is an error of its file.
// Said of an error where the run loads no reference: what reads one fails there, and only there.
std::string without_reference(const at::Tensor& ref_logprobs_R) {
  return ref_logprobs_R.defined()
             ? ""
             : " (ref_logprobs_R is undefined in this run, which loads no reference model: "
               "algorithm.kl.coef above 0 does)";
}

template <typename Function>
auto guarded_call(const std::string& path, const Function& function)
    -> Result<decltype(function())> {
  try {
    return function();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return invalid_input(cat(path, ": ", what.substr(0, what.find('\n'))));
  } catch (...) {
    return invalid_input(cat(path, ": it threw what is no std::exception"));
  }
}

Status check_size(const std::string& path, const at::Tensor& values, int64_t size,
                  const char* what) {
  if (!values.defined()) return invalid_input(cat(path, ": it gives no ", what));
  if (values.dim() == 1 && values.numel() == size) return ok_status();
  return invalid_input(cat(path, ": it gives ", values.numel(), " ", what, " for ", size,
                           " tokens; it must be one each, [R]"));
}

Status check_metrics(const std::string& path, const std::map<std::string, at::Tensor>& own) {
  for (const auto& [name, unused] : own)
    if (is_metric_of_braid(name))
      return invalid_input(cat(path, ": its metric '", name, "' has a name of Braid's own; begin ",
                               "it with another word, as own/NAME"));
  return ok_status();
}

void add_own_metrics(const std::map<std::string, at::Tensor>& own, Metrics& metrics) {
  for (const auto& [name, values] : own)
    if (values.defined()) metrics[name] = distribution(to_doubles(values));
}

Result<at::Tensor> own_losses_of(const std::string& path, const OwnLossEntry& entry,
                                 const OwnLossInput& input, Metrics* metrics) {
  const auto called = guarded_call(path, [&] { return entry.loss(input); });
  if (!called.ok())
    return invalid_input(called.status().message() + without_reference(input.ref_logprobs_R));
  const OwnLoss& own = *called;
  BRAID_TRY(check_size(path, own.losses_R, input.logprobs_R.numel(), "losses"));
  BRAID_TRY(check_metrics(path, own.metrics));
  if (metrics != nullptr) add_own_metrics(own.metrics, *metrics);
  return own.losses_R;
}

// Drawn tokens of three samples, in float64.
OwnLossInput drawn_input() {
  OwnLossInput out;
  out.response_lens = {3, 1, 4};
  RandomStream random(7, 1);
  std::vector<double> now, old, ref, gains;
  for (int i = 0; i < 8; ++i) {
    now.push_back(-3 * random.unit() - 0.1);
    old.push_back(now.back() + 0.6 * random.unit() - 0.3);
    ref.push_back(now.back() + 0.6 * random.unit() - 0.3);
    gains.push_back(4 * random.unit() - 2);
  }
  out.logprobs_R = at::tensor(now, at::kDouble);
  out.old_logprobs_R = at::tensor(old, at::kDouble);
  out.ref_logprobs_R = at::tensor(ref, at::kDouble);
  out.advantages_R = at::tensor(gains, at::kDouble);
  out.mask_R = at::ones_like(out.logprobs_R);
  out.clip_low = 0.2, out.clip_high = 0.25;
  return out;
}

Result<double> value_at(const std::string& path, const OwnLossEntry& entry, OwnLossInput input,
                        int64_t token, double by) {
  const at::NoGradGuard none;
  input.logprobs_R = input.logprobs_R.clone();
  input.logprobs_R[token] += by;
  BRAID_ASSIGN(const at::Tensor losses_R, own_losses_of(path, entry, input, nullptr));
  return losses_R.sum().item<double>();
}

Status check_slope(const std::string& path, const OwnLossEntry& entry, const OwnLossInput& input,
                   const std::vector<double>& gradient) {
  for (size_t t = 0; t < gradient.size(); ++t) {
    const auto token = static_cast<int64_t>(t);
    BRAID_ASSIGN(const double above, value_at(path, entry, input, token, kStep));
    BRAID_ASSIGN(const double below, value_at(path, entry, input, token, -kStep));
    const double slope = (above - below) / (2 * kStep);
    if (std::abs(slope - gradient[t]) <= kTolerance * std::max(1.0, std::abs(slope))) continue;
    return invalid_input(cat(path, ": its gradient is wrong: ", gradient[t], " at token ", t,
                             " of a drawn batch, where central differences give ", slope,
                             "; where that is meant (detach()), write BRAID_LOSS_WITH_CONSTANTS"));
  }
  return ok_status();
}

}  // namespace

Status check_own_loss(const std::string& path, const OwnLossEntry& entry) {
  OwnLossInput input = drawn_input();
  const at::Tensor logprobs_R = input.logprobs_R.clone().requires_grad_(true);
  OwnLossInput attached = input;
  attached.logprobs_R = logprobs_R;
  const at::AutoGradMode with(true);
  BRAID_ASSIGN(const at::Tensor losses_R, own_losses_of(path, entry, attached, nullptr));
  if (!losses_R.requires_grad())
    return invalid_input(cat(path, ": its losses do not depend on logprobs_R"));
  if (!at::isfinite(losses_R).all().item<bool>())
    return invalid_input(cat(path, ": a loss of a drawn batch is not finite"));
  const auto backward = guarded_call(path, [&] {
    losses_R.sum().backward();
    return 0;
  });
  BRAID_TRY(backward.status());
  const std::vector<double> gradient = to_doubles(logprobs_R.grad());
  for (const double slope : gradient)
    if (!std::isfinite(slope))
      return invalid_input(cat(path, ": the gradient of a drawn batch is not finite"));
  if (entry.gradient == OwnGradient::kWithConstants) return ok_status();
  return check_slope(path, entry, input, gradient);
}

namespace {

// The entry of a library that was tried; once in a process.
template <typename Entry>
Result<const Entry*> tried_entry(const std::string& path, const char* symbol, const char* macro,
                                 Status (*check)(const std::string&, const Entry&)) {
  static std::mutex mutex;
  static std::map<std::string, const Entry*> tried;
  const std::lock_guard lock(mutex);
  if (const auto known = tried.find(path); known != tried.end()) return known->second;
  BRAID_ASSIGN(const auto* entry, open_entry<Entry>(path, symbol, macro));
  BRAID_TRY(check(path, *entry));
  return tried[path] = entry;
}

at::Tensor field_or_none(const AlgoBatch& batch, const char* name, at::ScalarType type) {
  const auto found = batch.fields.find(name);
  if (found == batch.fields.end()) return {};
  return found->second.flatten().to(type, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

Result<LossFn> own_loss(const std::string& path) {
  BRAID_ASSIGN(
      const OwnLossEntry* entry,
      tried_entry(path, "braid_own_loss_entry", "BRAID_LOSS", check_own_loss).at("algorithm.loss"));
  return LossFn([path, entry](const ModelOutputs& outputs, const AlgoBatch& batch,
                              const Denominators& denominators, const AlgorithmOptions& options) {
    PolicyObjective objective;
    Metrics own;
    objective.losses_R = [&](const PolicyTerms& terms, const AlgorithmOptions& o) {
      const auto type = terms.logprobs_R.scalar_type();
      OwnLossInput input{terms.logprobs_R,
                         terms.old_R,
                         field_or_none(batch, "ref_logprobs", type),
                         terms.advantages_R,
                         at::ones_like(terms.old_R),
                         batch.response_lens,
                         o.clip_low,
                         o.clip_high};
      return own_losses_of(path, *entry, input, &own);
    };
    Result<LossResult> result =
        policy_objective_loss(outputs, batch, denominators, options, objective);
    if (result.ok()) merge(result->metrics, own);
    return result;
  });
}

bool is_metric_of_braid(const std::string& name) {
  const std::string group = name.substr(0, name.find('/'));
  return std::find(std::begin(kMetricGroups), std::end(kMetricGroups), group) !=
         std::end(kMetricGroups);
}

namespace {

// What the library says of the samples, and its advantages as numbers.
struct CheckedAdvantages {
  OwnAdvantages own;
  std::vector<double> values;
};

Result<CheckedAdvantages> own_advantages_of(const std::string& path,
                                            const OwnAdvantagesEntry& entry,
                                            const OwnAdvantagesInput& input, int64_t tokens) {
  CheckedAdvantages out;
  auto called = guarded_call(path, [&] { return entry.advantages(input); });
  if (!called.ok())
    return invalid_input(called.status().message() + without_reference(input.ref_logprobs_R));
  out.own = *std::move(called);
  BRAID_TRY(check_size(path, out.own.advantages_R, tokens, "advantages"));
  BRAID_TRY(check_metrics(path, out.own.metrics));
  out.values = to_doubles(out.own.advantages_R);
  for (const double advantage : out.values)
    if (!std::isfinite(advantage)) return invalid_input(cat(path, ": an advantage is not finite"));
  return out;
}

// Two prompts with four samples each.
OwnAdvantagesInput drawn_samples() {
  OwnAdvantagesInput out;
  out.response_lens = {3, 1, 4, 2, 2, 5, 1, 3};
  out.groups = {0, 0, 0, 0, 1, 1, 1, 1};
  RandomStream random(7, 2);
  std::vector<float> rewards, old, ref;
  for (const int64_t tokens : out.response_lens) {
    rewards.push_back(static_cast<float>(random.unit()));
    for (int64_t t = 0; t < tokens; ++t) {
      old.push_back(static_cast<float>(-3 * random.unit() - 0.1));
      ref.push_back(old.back() + static_cast<float>(0.6 * random.unit() - 0.3));
    }
  }
  out.rewards_S = at::tensor(rewards, at::kFloat);
  out.old_logprobs_R = at::tensor(old, at::kFloat);
  out.ref_logprobs_R = at::tensor(ref, at::kFloat);
  return out;
}

}  // namespace

Status check_own_advantages(const std::string& path, const OwnAdvantagesEntry& entry) {
  const OwnAdvantagesInput input = drawn_samples();
  const int64_t tokens = input.old_logprobs_R.numel();
  BRAID_ASSIGN(const CheckedAdvantages once, own_advantages_of(path, entry, input, tokens));
  BRAID_ASSIGN(const CheckedAdvantages again,
               own_advantages_of(path, entry, drawn_samples(), tokens));
  if (once.values == again.values) return ok_status();
  return invalid_input(cat(path, ": its advantages of the same samples differ from call to call, ",
                           "so that ranks would not agree on them"));
}

Result<ComputeFn> own_advantages(const std::string& path) {
  BRAID_ASSIGN(
      const OwnAdvantagesEntry* entry,
      tried_entry(path, "braid_own_advantages_entry", "BRAID_ADVANTAGES", check_own_advantages)
          .at("algorithm.advantages"));
  return ComputeFn([path, entry](const AlgoBatch& batch, const AlgorithmOptions&,
                                 AlgoState&) -> Result<ComputeResult> {
    BRAID_ASSIGN(const at::Tensor rewards_S, sample_field(batch, "rewards"));
    // A copy: what the library writes there must not become the rewards of the step.
    const OwnAdvantagesInput input{
        rewards_S.clone(), field_or_none(batch, "old_logprobs", at::kFloat),
        field_or_none(batch, "ref_logprobs", at::kFloat), batch.response_lens, batch.groups};
    BRAID_ASSIGN(const CheckedAdvantages checked,
                 own_advantages_of(path, *entry, input, token_count(batch)));
    ComputeResult result;
    result.metrics["reward/total_mean"] = distribution(to_doubles(rewards_S));
    add_advantage_metrics(result.metrics, checked.values);
    add_own_metrics(checked.own.metrics, result.metrics);
    result.fields["advantages"] = from_doubles(checked.values, rewards_S);
    return result;
  });
}

}  // namespace braid::inline algo

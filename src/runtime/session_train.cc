// Train calls: mini-batches of one rollout, each an optimizer step over micro-batches that a
// schedule orders.
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "runtime/response_rows.h"
#include "runtime/session.h"
#include "schedule/schedule.h"
#include "train/executor.h"
#include "train/packing.h"

namespace braid {
namespace {

constexpr uint64_t kPermutationStream = 0x9e47;

template <typename T>
void shuffle(std::vector<T>& items, uint64_t seed, uint64_t stream) {
  RandomStream random(seed, stream);
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

// Rows of equal group kept together, in order.
std::vector<std::vector<size_t>> group_rows(const SampleStore& store) {
  std::vector<std::vector<size_t>> groups;
  std::map<int64_t, size_t> place;
  for (size_t row = 0; row < store.size(); ++row) {
    const auto [found, fresh] = place.emplace(store.sample(row).group.value, groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back(row);
  }
  return groups;
}

// Cuts items into `parts` runs whose sizes differ by at most one, and flattens each.
std::vector<std::vector<size_t>> cut(const std::vector<std::vector<size_t>>& items, size_t parts) {
  std::vector<std::vector<size_t>> out(parts);
  for (size_t part = 0; part < parts; ++part)
    for (size_t i = items.size() * part / parts; i < items.size() * (part + 1) / parts; ++i)
      out[part].insert(out[part].end(), items[i].begin(), items[i].end());
  return out;
}

}  // namespace

// Mini-batches hold whole groups where the groups divide evenly, else single samples. Every epoch
// has its own order.
Status Session::begin_train(const Call&) {
  minibatches_.clear();
  minibatch_ = 0;
  stop_training_ = false;
  const auto parts = static_cast<size_t>(
      std::min<int64_t>(config_.train.minibatches, static_cast<int64_t>(store_.size())));
  std::vector<std::vector<size_t>> units = group_rows(store_);
  if (units.size() % parts != 0) {
    units.clear();
    for (size_t row = 0; row < store_.size(); ++row) units.push_back({row});
  }
  for (int64_t epoch = 0; epoch < config_.train.epochs_per_rollout; ++epoch) {
    const auto stream = static_cast<uint64_t>(step_ * config_.train.epochs_per_rollout + epoch);
    if (parts > 1)
      shuffle(units, mix_seed(static_cast<uint64_t>(config_.train.seed), kPermutationStream),
              stream);
    for (auto& rows : cut(units, parts)) minibatches_.push_back(std::move(rows));
  }
  return ok_status();
}

Result<at::Tensor> Session::micro_loss(const Call& call, const std::vector<size_t>& rows,
                                       const Denominators& denominators) {
  Model& model = *roles_.at(call.role.value).model;
  BRAID_ASSIGN(const LossFn loss, find_loss(call.function));
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  const ResponseRows packed = pack_responses(*prompts, *responses, rows, model.options().device);
  const at::Tensor hidden = model.forward(packed.batch, nullptr);
  ModelOutputs outputs;
  if (model.spec().scalar_head) {
    outputs.values_R = scalar_outputs(model, at::index_select(hidden, 0, packed.rows_R));
    outputs.scores_S = scalar_outputs(model, at::index_select(hidden, 0, packed.last_S));
  } else {
    const double temperature = generates(program_.graph) ? config_.rollout.temperature : 1;
    const HeadOutput head = head_logprobs(at::index_select(hidden, 0, packed.rows_R),
                                          model.head_weight(), packed.targets_R, temperature, true);
    outputs.logprobs_R = head.logprobs_N;
    outputs.entropy_R = head.entropy_N;
  }
  BRAID_ASSIGN(LossResult result, loss(outputs, batch, denominators, config_.algorithm));
  for (const auto& [name, metric] : result.metrics) metrics_[name].merge(metric);
  return result.loss;
}

Status Session::run_schedule(const Call& call) {
  const std::vector<size_t>& rows = minibatches_[minibatch_];
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  Denominators denominators{0, static_cast<double>(rows.size()), 0};
  std::set<int64_t> groups;
  std::vector<std::vector<size_t>>
      units;  // a group's rows share a micro-batch: losses may compare them
  std::vector<int64_t> counts;
  for (const size_t row : rows) {
    denominators.tokens += static_cast<double>((*responses)[row].size());
    const bool fresh = groups.insert(store_.sample(row).group.value).second;
    const auto tokens = static_cast<int64_t>((*prompts)[row].size() + (*responses)[row].size());
    const bool same = !fresh && !units.empty() &&
                      store_.sample(units.back().back()).group == store_.sample(row).group;
    if (same && !generates(program_.graph)) {
      units.back().push_back(row);
      counts.back() += tokens;
    } else {
      units.push_back({row});
      counts.push_back(tokens);
    }
  }
  denominators.groups = static_cast<double>(groups.size());
  std::vector<std::vector<size_t>> micro_batches;
  for (const auto& packed : pack_micro_batches(counts, config_.train.micro_tokens)) {
    micro_batches.emplace_back();
    for (const size_t unit : packed)
      micro_batches.back().insert(micro_batches.back().end(), units[unit].begin(),
                                  units[unit].end());
  }
  const Schedule schedule = one_f_one_b(1, static_cast<int32_t>(micro_batches.size()));
  return braid::run_schedule(schedule, 0, [&](int32_t micro_batch) {
    return micro_loss(call, micro_batches[micro_batch], denominators);
  });
}

// One process agrees with itself: early stop by the KL to the rollout's policy, averaged over the
// step so far.
Status Session::agree(const Call& call) {
  if (call.kind == CallKind::kGenerate) {
    drained_ = engine_->drained();
    return ok_status();
  }
  const auto kl = metrics_.find("kl/update");
  stop_training_ = config_.algorithm.stop_kl > 0 && kl != metrics_.end() &&
                   kl->second.mean() > config_.algorithm.stop_kl;
  return ok_status();
}

Status Session::optimizer_step(const Call& call) {
  RoleState& role = roles_.at(call.role.value);
  if (stop_training_) {
    role.optimizer->zero_grad();
    return ok_status();
  }
  const int64_t per_step = config_.train.minibatches * config_.train.epochs_per_rollout;
  const AdamW::StepReport report = role.optimizer->step(config_.train.total_steps * per_step);
  role.model->weights_changed();
  const std::string prefix = call.role.value == "critic" ? "critic/" : "policy/";
  if (!report.applied) {
    ++skipped_;
    const std::string what = cat("gradient norm of ", call.role, " is not finite in step ", step_,
                                 "; the update was not applied");
    if (config_.train.on_nonfinite == "stop")
      return {Code::kStopped, what + " (train.on_nonfinite: stop)"};
    if (skipped_ > config_.train.max_skipped_steps)
      return {Code::kStopped, cat(what, "; more than train.max_skipped_steps in a row")};
  } else {
    skipped_ = 0;
    metrics_[prefix + "grad_norm"].add(report.grad_norm);
  }
  metrics_[prefix + "lr"].add(report.lr);
  ++minibatch_;
  return ok_status();
}

}  // namespace braid

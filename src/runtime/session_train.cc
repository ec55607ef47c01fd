// Train calls: mini-batches of one rollout, each an optimizer step over micro-batches that a
// schedule orders.
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "host/file.h"
#include "runtime/response_rows.h"
#include "runtime/run_keeper.h"
#include "runtime/session.h"
#include "schedule/schedule.h"
#include "train/executor.h"
#include "train/packing.h"

namespace braid {
namespace {

constexpr uint64_t kPermutationStream = 0x9e47;
constexpr const char* kUpdateKl = "kl/update";
constexpr const char* kCritic = "critic";

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

// Numbers of a field as JSON, which has no infinities: those become text.
Json field_json(const at::Tensor& values) {
  Json out = Json::array();
  const at::Tensor cpu = values.to(at::kCPU).contiguous();
  for (int64_t i = 0; i < cpu.numel(); ++i) {
    const float value = cpu.const_data_ptr<float>()[i];
    out.push_back(std::isfinite(value) ? Json(value) : Json(cat(value)));
  }
  return out;
}

}  // namespace

// Steps at the start in which a call does not train: all but the critic's, under
// critic.warmup_steps.
int64_t Session::idle_steps(const Call& call) const {
  const bool waits = roles_.count(kCritic) > 0 && call.role.value != kCritic;
  return waits ? config_.critic.warmup_steps : 0;
}

// Mini-batches hold whole groups where the groups divide evenly, else single samples. Every epoch
// has its own order.
Status Session::begin_train(const Call& call) {
  minibatches_.clear();
  minibatch_ = 0;
  region_metrics_.clear();
  stop_training_ = step_ < idle_steps(call);
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

int64_t Session::row_tokens(const std::vector<size_t>& rows) const {
  const TokenLists& prompts = **store_.tokens("prompt_ids");
  const TokenLists& responses = **store_.tokens("response_ids");
  int64_t tokens = 0;
  for (const size_t row : rows)
    tokens += static_cast<int64_t>(prompts[row].size() + responses[row].size());
  return tokens;
}

// Totals over the whole update, so that no loss depends on its cut into micro-batches.
Denominators Session::denominators(const std::vector<size_t>& rows) const {
  const TokenLists& responses = **store_.tokens("response_ids");
  Denominators out{0, static_cast<double>(rows.size()), 0};
  std::set<int64_t> groups;
  for (const size_t row : rows) {
    out.tokens += static_cast<double>(responses[row].size());
    groups.insert(store_.sample(row).group.value);
  }
  out.groups = static_cast<double>(groups.size());
  return out;
}

// Where the data has groups (preference pairs) a loss compares their rows, which then share a
// micro-batch. Groups of generated samples are compared before, over the whole rollout.
std::vector<std::vector<size_t>> Session::micro_batches(const std::vector<size_t>& rows) const {
  std::vector<std::vector<size_t>> units;
  for (const size_t row : rows) {
    const bool joins = !generates(program_.graph) && !units.empty() &&
                       store_.sample(units.back().back()).group == store_.sample(row).group;
    if (!joins) units.emplace_back();
    units.back().push_back(row);
  }
  std::vector<int64_t> counts;
  for (const auto& unit : units) counts.push_back(row_tokens(unit));
  std::vector<std::vector<size_t>> out;
  for (const auto& packed : pack_micro_batches(counts, config_.train.micro_tokens)) {
    out.emplace_back();
    for (const size_t unit : packed)
      out.back().insert(out.back().end(), units[unit].begin(), units[unit].end());
  }
  return out;
}

Result<ModelOutputs> Session::model_outputs(Model& model, const std::vector<size_t>& rows) const {
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  const ResponseRows packed = pack_responses(*prompts, *responses, rows, model.options().device);
  const at::Tensor hidden = model.forward(packed.batch, nullptr);
  ModelOutputs outputs;
  if (model.spec().scalar_head) {
    outputs.values_R = scalar_outputs(model, at::index_select(hidden, 0, packed.rows_R));
    outputs.scores_S = scalar_outputs(model, at::index_select(hidden, 0, packed.last_S));
    return outputs;
  }
  const double temperature = generates(program_.graph) ? config_.rollout.temperature : 1;
  const HeadOutput head = head_logprobs(at::index_select(hidden, 0, packed.rows_R),
                                        model.head_weight(), packed.targets_R, temperature);
  outputs.logprobs_R = head.logprobs_N;
  outputs.entropy_R = head.entropy_N;
  return outputs;
}

Result<at::Tensor> Session::micro_loss(const Call& call, const std::vector<size_t>& rows,
                                       const Denominators& denominators) {
  BRAID_ASSIGN(const LossFn loss, find_loss(call.function));
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  BRAID_ASSIGN(const ModelOutputs outputs, model_outputs(*roles_.at(call.role.value).model, rows));
  BRAID_ASSIGN(LossResult result, loss(outputs, batch, denominators, config_.algorithm));
  merge(metrics_, result.metrics);
  merge(region_metrics_, result.metrics);
  if (!std::isfinite(result.loss.item<double>()))
    refusal_ = cat("the loss of ", call.role, " is not finite in step ", step_);
  return result.loss;
}

// The gradients of one update. An update that warm-up leaves out has none.
Status Session::run_schedule(const Call& call) {
  refusal_.clear();
  if (stop_training_) return ok_status();
  const std::vector<size_t>& rows = minibatches_[minibatch_];
  const auto packed = micro_batches(rows);
  const Denominators totals = denominators(rows);
  trained_tokens_ += row_tokens(rows);
  roles_.at(call.role.value).model->keep_packed(packed.size() > 1);
  const Schedule schedule = one_f_one_b(1, static_cast<int32_t>(packed.size()));
  return braid::run_schedule(schedule, 0, [&](int32_t micro_batch) {
    return micro_loss(call, packed[micro_batch], totals);
  });
}

// One process agrees with itself. A loss that reports kUpdateKl, the divergence from the policy
// that generated, asks for an early stop of its call once the mean over the call's updates exceeds
// algorithm.stop_kl.
Status Session::agree(const Call& call) {
  if (call.kind == CallKind::kGenerate) {
    drained_ = !engine_ || engine_->drained();
    return ok_status();
  }
  const auto kl = region_metrics_.find(kUpdateKl);
  if (config_.algorithm.stop_kl > 0 && kl != region_metrics_.end() &&
      kl->second.mean() > config_.algorithm.stop_kl)
    stop_training_ = true;
  return ok_status();
}

AdamW::StepReport Session::apply_update(const Call& call) {
  ModelInstance& role = roles_.at(call.role.value);
  const int64_t steps = config_.train.total_steps - idle_steps(call);
  const int64_t per_step = config_.train.minibatches * config_.train.epochs_per_rollout;
  const AdamW::StepReport report = role.optimizer->step(std::max<int64_t>(steps, 1) * per_step);
  role.model->weights_changed();
  if (!report.applied)
    refusal_ = cat("the gradient norm of ", call.role, " is not finite in step ", step_);
  return report;
}

Status Session::optimizer_step(const Call& call) {
  ModelInstance& role = roles_.at(call.role.value);
  if (stop_training_) {
    role.optimizer->zero_grad();
    return ok_status();
  }
  const std::string prefix = (call.metrics.empty() ? call.role.value : call.metrics) + "/";
  if (refusal_.empty()) {
    BRAID_TRY(keep_frozen_copies(call.role.value));
    const AdamW::StepReport report = apply_update(call);
    metrics_[prefix + "lr"].add(report.lr);
    if (report.applied) metrics_[prefix + "grad_norm"].add(report.grad_norm);
  } else {
    role.optimizer->zero_grad();
  }
  metrics_[prefix + "skipped"].add(refusal_.empty() ? 0 : 1);
  role.skipped = refusal_.empty() ? 0 : role.skipped + 1;
  if (!refusal_.empty()) BRAID_TRY(refuse_update(call));
  ++minibatch_;
  return ok_status();
}

// The policy of train.on_nonfinite, after the weights were left as they were.
Status Session::refuse_update(const Call& call) {
  BRAID_ASSIGN(const std::string path, write_offending_batch(call));
  const std::string what = cat(refusal_, "; the update was not applied, its batch is in ", path);
  if (config_.train.on_nonfinite == "stop")
    return {Code::kStopped, what + " (train.on_nonfinite: stop)"};
  const int64_t skipped = roles_.at(call.role.value).skipped;
  if (skipped > config_.train.max_skipped_steps)
    return {Code::kStopped, cat(what, "; ", skipped, " in a row, train.max_skipped_steps is ",
                                config_.train.max_skipped_steps)};
  log_warning(what);
  return ok_status();
}

// One line per sample of the refused update: its ids and the fields that the loss read.
Result<std::string> Session::write_offending_batch(const Call& call) {
  const std::string path = join_path(run_folder(config_), cat("nonfinite_step_", step_, ".jsonl"));
  BRAID_TRY(make_folder(run_folder(config_)));
  BRAID_ASSIGN(const TokenLists* prompts, store_.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store_.tokens("response_ids"));
  std::ofstream out(path, refused_step_ == step_ ? std::ios::app : std::ios::trunc);
  refused_step_ = step_;
  for (const size_t row : minibatches_[minibatch_]) {
    Json line = {{"step", step_}, {"minibatch", minibatch_}, {"call", call.name}};
    line["why"] = refusal_;
    line["sample"] = store_.sample(row).id.value;
    line["prompt_ids"] = (*prompts)[row];
    line["response_ids"] = (*responses)[row];
    BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, {row}));
    for (const auto& [name, values] : batch.fields) line["fields"][name] = field_json(values);
    out << line.dump() << "\n";
  }
  out.flush();
  if (!out) return io_error(cat(path, ": cannot write; is the disk full?"));
  return path;
}

}  // namespace braid

#include "passes/training.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "algo/aggregation.h"
#include "algo/batch.h"
#include "base/contains.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "device/tensor_memory.h"
#include "host/work_section.h"
#include "nn/model_parts.h"
#include "passes/second_try.h"
#include "passes/train_call_facts.h"
#include "program/fused.h"
#include "samples/call_groups.h"
#include "samples/call_rows.h"
#include "samples/drawn_groups.h"
#include "samples/offending_batch.h"
#include "samples/step_metrics.h"
#include "weights/roles.h"

namespace braid::inline passes {
namespace {

constexpr const char* kUpdateKl = "kl/update";

// Of all ranks' samples, whose rewards every rank has: where those of a group are equal none of its
// responses is preferred (algo/functions.h).
double groups_with_pairs(const SampleStore& store, const SampleRows& rows) {
  const Result<at::Tensor> rewards = store.reals("rewards", rows_of(rows));
  BRAID_CHECK(rewards.ok(), "rewards go to all ranks");
  std::vector<int64_t> groups, with_pairs;
  for (const int32_t row : rows) groups.push_back(store.sample(row).group.value);
  const std::vector<bool> differ = with_signal(to_doubles(*rewards), groups);
  for (size_t i = 0; i < groups.size(); ++i)
    if (differ[i]) with_pairs.push_back(groups[i]);
  return static_cast<double>(count_groups(with_pairs));
}

}  // namespace

int64_t Training::idle_steps() const { return waiting_steps(config_, graph_, call_->role); }

void Training::begin(const Call& call, TrainWork work, int64_t step) {
  call_ = &call;
  work_ = std::move(work);
  step_ = step;
  go_to_minibatch(0);
  end_.reset();
  ran_out_ = repeats_ = false;
  open_.reset();
  held_ = {};
  stopped_ = step < idle_steps() || (work_.partition->minibatches.empty() && !work_.more);
  call_metrics_.clear();
  losses_.clear();
  packed_.clear();
}

void Training::go_on(TrainWork work) {
  work_ = std::move(work);
  go_to_minibatch(0);
  const std::vector<MiniBatch>& minibatches = work_.partition->minibatches;
  if (minibatches.empty() && !work_.more) stopped_ = true;
  if (open_ && !minibatches.empty() && !minibatches.front().begun) forget_update();
}

void Training::resume(const Call& call, TrainWork work, int64_t step, TrainingProgress progress) {
  begin(call, std::move(work), step);
  go_to_minibatch(progress.minibatch);
  stopped_ = progress.stopped;
  call_metrics_ = std::move(progress.metrics);
}

void Training::go_to_minibatch(size_t minibatch) {
  cursor_ = OpCursor(work_.ops.ops, static_cast<int32_t>(minibatch));
}

void Training::forget_update() {
  call_metrics_ = std::move(open_->call_metrics);
  open_.reset();
  drop();
  zero();
  model().rest();
}

void Training::repeat(TrainWork work) {
  forget_update();
  recut(std::move(work));
  ran_out_ = false;
  repeats_ = true;
}

void Training::recut(TrainWork work) {
  const size_t minibatch = open_minibatch();
  work_ = std::move(work);
  go_to_minibatch(minibatch);
}

Result<bool> Training::reserve() {
  if (is_over()) return true;
  return finds_memory(*work_.needs, *work_.partition, work_.ops, cursor_.minibatch(),
                      model().options().device, work_.groups.call);
}

void Training::drop() {
  losses_.clear();
  packed_.clear();
}

void Training::abandon() {
  drop();
  passes_.reset();
  open_.reset();
  if (call_ == nullptr) return;
  zero();
  model().rest();
}

Rows Training::own_rows() const {
  Rows out;
  for (const SampleRows& rows : minibatch().micro_batches[work_.ops.at.dp_rank])
    out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

template <typename Run>
Status Training::run_ops(OpKind kind, const Run& run) {
  const TransferCheck::Counting counting(check_);
  return cursor_.run(kind, [&](int32_t op) {
    const WorkSection section;
    count_instruction();
    return run(work_.ops.ops[op]);
  });
}

Status Training::open_update() {
  open_ = Open{{}, 0, 0, 0, call_metrics_, {}};
  why_ran_out_.clear();
  refusal_.clear();
  retried_ = false;
  norm_.reset();
  if (role().gradients) role().gradients->zero();
  begin_part();
  return ok_status();
}

// Of an update that is made in parts each has others of its samples.
void Training::begin_part() {
  open_->expected = static_cast<int64_t>(minibatch().rows.size());
  const LossTotals& totals = minibatch().totals;
  denominators_ = {static_cast<double>(totals.tokens), static_cast<double>(totals.samples),
                   static_cast<double>(totals.groups)};
  if (contains(call_->reads, "preferred"))
    denominators_.groups = groups_with_pairs(store_, minibatch().rows);
  const Rows own = own_rows();
  open_->rows.insert(own.begin(), own.end());
  if (reports() && work_.ops.at.stage == 0) open_->tokens += row_tokens(store_, own);
  const size_t micro_batches = minibatch().micro_batches[work_.ops.at.dp_rank].size();
  // The last one of a part is not the last of the update.
  backwards_left_ = micro_batches * work_.ops.bodies.size() + (minibatch().goes_on ? 1 : 0);
  model().keep_packed(work_.keeps_packed && micro_batches > 1);
  const auto update = static_cast<uint64_t>(step_) << 32 | open_minibatch();
  model().set_dropout_seed(mix_seed(static_cast<uint64_t>(config_.train.seed), update));
}

void Training::scale_gradients(double tokens) {
  const double factor = tokens / denominators_.tokens;
  if (!divides_by_tokens(config_.algorithm) || factor == 1) return;
  if (role().gradients) return role().gradients->scale(factor);
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model().trainable_parameters())
    if (parameter.grad().defined()) parameter.mutable_grad().mul_(factor);
}

// Whether gradients are summed over other ranks than the data-parallel ones.
bool Training::sums_parts() const {
  return work_.groups.tensor.communicator != nullptr || work_.groups.ends != nullptr;
}

bool Training::each_backward() const {
  return role().gradients && role().gradients->each_backward();
}

// Whether the backward before the last `left` ones starts to reduce what it adds to. What other
// ranks have to add to whole gradients must come before that; and where ranks share what they
// reduce they wait for each other meanwhile, as they must not between passes of two calls, whose
// replicas have other orders.
bool Training::reduces_in(size_t left) const {
  if (each_backward()) return true;
  const bool waits = work_.fused && role().gradients && role().gradients->sharded();
  return left == 0 && role().gradients && !sums_parts() && !waits;
}

// Of several virtual pipeline stages a backward adds to the gradients of one alone.
void Training::begin_reduced(const Op& backward) {
  const auto range = static_cast<size_t>(backward.body);
  role().gradients->reduced_backward_follows(
      [&](int64_t number) { return !each_backward() || uses_number(model(), range, number); });
}

Status Training::pass() {
  BRAID_TRY(begin_passes());
  return end_passes();
}

Status Training::begin_passes() {
  if (done()) return ok_status();
  check_ = TransferCheck(work_.frame, model(), role().gradients != nullptr, work_.second);
  passes_.emplace(model(), work_.everyone, work_.groups.weights);
  if (work_.second) passes_->run_beside_another();
  if (free_tensor_bytes(model().options().device))
    passes_->measure(*work_.needs, [&](int32_t micro_batch) { return tokens_of(micro_batch); });
  bool opened = false;
  BRAID_TRY(cursor_.begin_passes([&](int32_t) {
    opened = true;
    return open_update();
  }));
  BRAID_CHECK(opened != minibatch().begun, "passes begin with the gradients at zero");
  if (opened) return ok_status();
  const double tokens = denominators_.tokens;
  begin_part();
  scale_gradients(tokens);
  return ok_status();
}

Status Training::run_op_of_passes(int32_t index) {
  const WorkSection section;
  count_instruction();
  const TransferCheck::Counting counting(check_);
  const Op& op = work_.ops.ops[index];
  if (!ModelPass::runs(op.kind)) {
    check_.expect(work_.ops, op, {});
    return with_room([&] { return sum_parts(op); });
  }
  const std::string where = cat("micro-batch ", op.micro_batch);
  const bool reduced = op.kind == OpKind::kBackward && reduces_in(--backwards_left_);
  if (reduced) begin_reduced(op);
  BRAID_TRY(passes_->run(op, work_.ops.bodies[op.body], *this).at(where));
  check_.expect(work_.ops, op, passes_->rows(op));
  if (!reduced || !each_backward()) return ok_status();
  return with_second_try([&] { return role().gradients->finish().at(where); },
                         [&](const std::string& why) { passes_->give_up(*this, why); });
}

Status Training::run_pass(const ScheduleOp& pass) {
  if (!passes_) return ok_status();
  return cursor_.run_pass(pass, [&](int32_t op) { return run_op_of_passes(op); });
}

// What is left of the passes, and the sums that follow them.
Status Training::end_passes() {
  if (!passes_) return ok_status();
  const bool goes_on = minibatch().goes_on;
  BRAID_TRY(cursor_.end_passes([&](int32_t op) { return run_op_of_passes(op); }));
  BRAID_TRY(passes_->finish());
  if (why_ran_out_.empty()) why_ran_out_ = passes_->ran_out();
  if (!why_ran_out_.empty()) check_.forget();
  const HeldByPasses& held = passes_->held();
  held_.most_micro_batches = std::max(held_.most_micro_batches, held.most_micro_batches);
  held_.most_bytes = std::max(held_.most_bytes, held.most_bytes);
  held_.most_of_one = std::max(held_.most_of_one, held.most_of_one);
  passes_.reset();
  packed_.clear();
  if (goes_on) settle();
  return ok_status();
}

DeclaredPasses Training::declared_passes() const {
  return {*work_.needs, work_.ops, [&](int32_t micro_batch) { return tokens_of(micro_batch); }};
}

// Nothing that what comes after the passes needs is let go.
Status Training::with_room(const std::function<Status()>& act) {
  return with_second_try(act, [&](const std::string& why) {
    log_warning(cat("call ", call_->name, ": out of memory (", why, ") after the last backward; ",
                    "it is tried again without packed copies of weights"));
    retried_ = true;
    drop();
    model().rest();
  });
}

Status Training::sum_parts(const Op& op) {
  const GroupKind kind = work_.ops.groups[op.group].kind;
  const GradientOf gradient = [&](const std::string& name, const at::Tensor&) {
    return role().gradients->gradient(name);
  };
  if (kind == GroupKind::kTensor)
    return sum_partial_gradients(model(), *work_.groups.tensor.communicator, gradient);
  if (kind == GroupKind::kShared)
    return sum_partial_gradients(model(), *work_.groups.tensor.shared, gradient);
  if (kind == GroupKind::kEnds) return sum_tied_gradients(model(), *work_.groups.ends, gradient);
  BRAID_CHECK(false, cat("no sum over ", group_kind_name(kind)));
}

bool Training::empty(int32_t index) const { return micro_batch(index).empty(); }

// The gradients of what was used from this unit on are complete where it was computed with. A
// forward has started none.
void Training::passed_by(int64_t unit) {
  if (role().gradients) role().gradients->start_from(unit * kNumbersPerUnit);
}

Result<TokenBatch> Training::tokens(int32_t index) {
  return packed_.tokens(index, store_, store_.responses_of(*call_), rows_of(micro_batch(index)),
                        model().options().device);
}

Status Training::outputs(int32_t index, const at::Tensor& hidden_TH) {
  const ResponseRows& packed = packed_.at(index);
  ModelOutputs out;
  if (model().spec().scalar_head) {
    out.values_R = scalar_outputs(model(), at::index_select(hidden_TH, 0, packed.rows_R));
    out.scores_S = scalar_outputs(model(), at::index_select(hidden_TH, 0, packed.last_S));
  } else {
    const double temperature = generates(graph_) ? config_.rollout.temperature : 1;
    const HeadOutput head = head_logprobs(model(), at::index_select(hidden_TH, 0, packed.rows_R),
                                          packed.targets_R, temperature);
    out.logprobs_R = head.logprobs_N;
    out.entropy_R = head.entropy_N;
    if (model().spec().value_head)
      out.values_R = scalar_outputs(model(), at::index_select(hidden_TH, 0, packed.rows_R));
  }
  packed_.erase(index);
  if (reports()) open_->computed += static_cast<int64_t>(micro_batch(index).size());
  BRAID_ASSIGN(const LossFn loss, find_loss(call_->function));
  BRAID_ASSIGN(const AlgoBatch batch,
               store_.gather(call_->reads, rows_of(micro_batch(index)), model().options().device));
  BRAID_ASSIGN(losses_[index], loss(out, batch, denominators_, config_.algorithm));
  return ok_status();
}

Result<at::Tensor> Training::loss(int32_t index) {
  const auto found = losses_.find(index);
  BRAID_CHECK(found != losses_.end(), cat("no loss of micro-batch ", index));
  const LossResult result = std::move(found->second);
  losses_.erase(found);
  if (reports()) open_->metrics.push_back(result.metrics);
  if (reports()) merge(call_metrics_, result.metrics);
  if (!std::isfinite(result.loss.item<double>()))
    refusal_ = cat("the loss of ", call_->role, " is not finite in step ", step_);
  return result.loss;
}

Status Training::reduce() {
  return run_ops(OpKind::kReduce, [&](const Op& op) {
    check_.expect(work_.ops, op, {});
    const GroupKind over = work_.ops.groups[op.group].kind;
    BRAID_CHECK(work_.groups.of(over) != nullptr,
                cat("the list reduces over ", group_kind_name(over), ", and nobody is there"));
    return over == GroupKind::kAcross ? role().gradients->sum_owned(*work_.groups.across)
                                      : with_room([&] { return role().gradients->finish(); });
  });
}

// Each element counts once: on one of the ranks that hold equal slices, of one replica, or on the
// one that owns it.
Status Training::norm() {
  if (work_.groups.call == nullptr) {
    if (refusal_.empty()) norm_ = std::sqrt(role().optimizer->squared_norm({}));
  } else {
    double squares = 0;
    const MainGradients& gradients = *role().gradients;
    if (work_.ops.at.dp_rank < (gradients.sharded() ? gradients.layout().ranks() : 1))
      squares = role().optimizer->squared_norm(uncounted_tensors(model()));
    const at::Tensor sum = at::tensor({squares}, at::kDouble);
    BRAID_TRY(work_.groups.call->all_reduce(sum, Reduce::kSum, "squares of the gradients").wait());
    norm_ = std::sqrt(sum.item<double>());
  }
  if (norm_ && !std::isfinite(*norm_))
    refusal_ = cat("the gradient norm of ", call_->role, " is not finite in step ", step_);
  return ok_status();
}

// What a rank has found becomes what any has; its own divergence becomes everyone's.
Status Training::agree_with_others(Metric* divergence) {
  if (work_.groups.call == nullptr) return ok_status();
  const at::Tensor numbers = at::tensor(
      {refusal_.empty() ? 0.0 : 1.0, divergence->sum, divergence->count, ran_out_ ? 1.0 : 0.0},
      at::kDouble);
  BRAID_TRY(work_.groups.call->all_reduce(numbers, Reduce::kSum, "agreement on the update").wait());
  const double* agreed = numbers.const_data_ptr<double>();
  if (agreed[0] > 0 && refusal_.empty())
    refusal_ =
        cat("the loss of ", call_->role, " is not finite in step ", step_, " on another rank");
  divergence->sum = agreed[1], divergence->count = agreed[2];
  ran_out_ = agreed[3] > 0;
  return ok_status();
}

Status Training::agree() {
  if (done()) return ok_status();
  const auto kl = call_metrics_.find(kUpdateKl);
  Metric divergence = kl == call_metrics_.end() ? Metric() : kl->second;
  ran_out_ = !why_ran_out_.empty();
  BRAID_TRY(run_ops(OpKind::kAgree, [&](const Op& op) {
    check_.expect(work_.ops, op, {});
    return op.kind == OpKind::kNorm ? with_room([&] { return norm(); })
                                    : agree_with_others(&divergence);
  }));
  if (ran_out_) return ok_status();  // what was computed beside zeros says nothing
  if (config_.algorithm.stop_kl > 0 && divergence.count > 0 &&
      divergence.mean() > config_.algorithm.stop_kl)
    stopped_ = true;
  return ok_status();
}

void Training::zero() { role().optimizer->zero_grad(); }

Status Training::apply(const std::string& prefix) {
  Optimizer& optimizer = *role().optimizer;
  const int64_t steps = std::max<int64_t>(config_.train.total_steps - idle_steps(), 1);
  const int64_t total = steps * config_.train.minibatches * config_.train.epochs_per_rollout;
  if (counts()) metrics_[prefix + "lr"].add(optimizer.next_rate(total));
  if (!refusal_.empty()) return ok_status();
  BRAID_TRY(keep_frozen_copies(roles_, call_->role.value, config_));
  optimizer.update(*norm_, total);
  model().weights_changed();
  ++trained_.updates;
  if (counts()) metrics_[prefix + "grad_norm"].add(*norm_);
  return ok_status();
}

// What the passes of the update have found becomes the step's.
void Training::commit() {
  if (!open_) return;
  for (const Metrics& metrics : open_->metrics) merge(metrics_, metrics);
  ledger_.expect(call_->name, open_->expected);
  ledger_.computed(call_->name, open_->computed);
  trained_.tokens += open_->tokens;
  open_.reset();
}

Status Training::update() {
  if (std::exchange(repeats_, false)) return ok_status();
  if (done() && !stopped_) return ok_status();  // no mini-batch is open
  const bool refused = !refusal_.empty();
  Rows learnt;
  if (refused && open_) learnt.assign(open_->rows.begin(), open_->rows.end());
  commit();
  if (stopped_) {
    settle();
    zero();
    return ok_status();
  }
  const std::string prefix = metric_prefix(*call_);
  const size_t update_of = open_minibatch();
  const RefusedUpdate open{step_, update_of, std::move(learnt), refusal_};
  BRAID_TRY(
      run_ops(OpKind::kUpdate, [&](const Op&) { return norm_ ? apply(prefix) : ok_status(); }));
  if (open_minibatch() != update_of) settle();
  zero();
  if (counts()) metrics_[prefix + "skipped"].add(refused ? 1 : 0);
  role().skipped = refused ? role().skipped + 1 : 0;
  return refused ? refuse(open) : ok_status();
}

// A refused update changed nothing; all ranks know that it was.
Status Training::gather() {
  if (done()) return ok_status();
  BRAID_TRY(run_ops(OpKind::kAllGather, [&](const Op& op) {
    if (!refusal_.empty()) return ok_status();
    check_.expect(work_.ops, op, {});
    BRAID_TRY(role().optimizer->gather_weights());
    model().weights_changed();
    return ok_status();
  }));
  settle();
  return ok_status();
}

// What was begun twice for lack of memory says nothing.
void Training::settle() {
  if (retried_ || ran_out_) check_.forget();
  check_.settle(cat("call ", call_->name, ", mini-batch ", open_minibatch()));
}

// The weights are as they were.
Status Training::refuse(const RefusedUpdate& update) {
  BRAID_ASSIGN(const std::string path,
               write_offending_batch(run_folder(config_), *call_, update, store_,
                                     trained_.refused_step == step_));
  trained_.refused_step = step_;
  const std::string what = cat(refusal_, "; the update was not applied, its batch is in ", path);
  if (config_.train.on_nonfinite == "stop")
    return {Code::kStopped, what + " (train.on_nonfinite: stop)"};
  const int64_t skipped = role().skipped;
  if (skipped > config_.train.max_skipped_steps)
    return {Code::kStopped, cat(what, "; ", skipped, " in a row, train.max_skipped_steps is ",
                                config_.train.max_skipped_steps)};
  log_warning(what);
  return ok_status();
}

}  // namespace braid::inline passes

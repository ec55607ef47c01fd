#include "runtime/session.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>

#include "base/log.h"
#include "base/text.h"
#include "host/machine.h"
#include "runtime/check_models.h"
#include "runtime/dealing.h"
#include "runtime/fingerprint.h"
#include "runtime/roles.h"
#include "runtime/step_metrics.h"
#include "schedule/schedule.h"

namespace braid {
namespace {

Status check_options(const Config& config, const Graph& graph) {
  BRAID_TRY(check_functions(graph));
  BRAID_TRY(validate(config.algorithm));
  BRAID_TRY(check_rewards(config.reward));
  BRAID_TRY(validate(config.optim.actor, "optim.actor"));
  BRAID_TRY(validate(config.optim.critic, "optim.critic"));
  return validate(config.optim.reward, "optim.reward");
}

Inferred inferred_of(const Call& call) {
  if (call.function == "scores") return Inferred::kScores;
  return call.function == "logprobs" ? Inferred::kLogprobs : Inferred::kValues;
}

}  // namespace

struct Session::Loaded {
  RunData data;
  Roles roles;
  std::vector<std::unique_ptr<Reward>> rewards;
  RewardModels reward_models;
};

Status check_functions(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind == CallKind::kCompute)
      BRAID_TRY(find_compute(call.function).status().at(cat("call ", call.name)));
    if (call.kind == CallKind::kTrainStep)
      BRAID_TRY(find_loss(call.function).status().at(cat("call ", call.name)));
  }
  return ok_status();
}

Result<std::unique_ptr<Session>> Session::create(const Config& config, const Program& program) {
  const Graph& graph = program.graph;
  BRAID_TRY(check_options(config, graph));
  if (config.train.threads > 0) {
    BRAID_TRY(check_threads(config.train.threads).at("train.threads"));
    at::set_num_threads(static_cast<int>(config.train.threads));
  }
  Loaded loaded;
  BRAID_ASSIGN(loaded.data, load_run_data(config, config.data.train, data_need(graph)));
  std::vector<std::string> notes;
  BRAID_TRY(check_models(config, graph, loaded.data.tokenizer, &notes));
  for (const std::string& note : notes) log_warning(note);
  const bool asks = asks_rewards(config, graph);
  if (asks && config.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  if (asks) {
    BRAID_ASSIGN(loaded.rewards, make_rewards(config.reward));
  }
  BRAID_ASSIGN(loaded.roles, load_roles(config, graph));
  if (asks) {
    BRAID_ASSIGN(loaded.reward_models, load_reward_models(config, loaded.roles));
  }
  return std::unique_ptr<Session>(new Session(config, program, std::move(loaded)));
}

Session::Session(const Config& config, const Program& program, Loaded loaded)
    : config_(config),
      program_(program),
      data_(std::move(loaded.data)),
      store_(program.graph),
      roles_(std::move(loaded.roles)),
      generation_(config_.rollout, config_.train.seed, data_.tokenizer_or_null()),
      inference_(config_.rollout.temperature),
      training_(config_, program_.graph, roles_, store_, metrics_),
      scoring_(config_, data_.tokenizer_or_null(), std::move(loaded.rewards),
               std::move(loaded.reward_models)),
      frozen_(frozen_fingerprints(config_, roles_, scoring_.models())) {}

Status Session::run_call(const Call& call) {
  switch (call.kind) {
    case CallKind::kFetch:
      return fetch(call);
    case CallKind::kInfer:
      return infer(call);
    case CallKind::kReward:
      return reward(call);
    case CallKind::kCompute:
      return compute(call);
    case CallKind::kGenerate:
    case CallKind::kTrainStep:
      break;
  }
  BRAID_CHECK(false, "call " + call.name + " must be a region");
}

Status Session::fetch(const Call& call) {
  BRAID_TRY(fetch_samples(call, data_.data, position_.cursor, config_.rollout, store_));
  position_.cursor += config_.rollout.prompts_per_step;
  return ok_status();
}

Status Session::infer(const Call& call) {
  const auto parts = micro_batches(store_, store_.all_rows(), config_.train.micro_tokens, false);
  inference_.begin(*roles_.at(call.role.value).model, inferred_of(call), parts.size());
  for (const Rows& rows : parts) BRAID_TRY(inference_.forward(store_, rows));
  BRAID_TRY(inference_.collect(store_, call.writes.front().name));
  note_mismatch(store_, store_.all_rows(), metrics_);
  return ok_status();
}

Status Session::reward(const Call& call) {
  const Rows rows = store_.all_rows();
  ScoredSamples scored;
  if (asks_rewards(config_, program_.graph)) {
    BRAID_ASSIGN(scored, scoring_.score(store_, rows, position_.step));
  } else {
    scored = Scoring::replayed(generation_.replayed(), store_, rows);
  }
  note_rewards(scored, metrics_);
  BRAID_TRY(scoring_.record(scored, store_, rows, position_.step));
  const std::vector<float> rewards(scored.total.begin(), scored.total.end());
  BRAID_TRY(store_.put_reals(call.writes.front().name, rows, at::tensor(rewards)));
  store_.retain(scored.kept);
  if (store_.size() == 0)
    return {Code::kStopped,
            "reward: no sample of the step can be used: rewards failed (on_error: drop) or do not "
            "apply (None); the warnings above say why"};
  return ok_status();
}

Status Session::compute(const Call& call) {
  BRAID_ASSIGN(const ComputeFn function, find_compute(call.function));
  const Rows rows = store_.all_rows();
  BRAID_ASSIGN(const AlgoBatch batch, store_.gather(call.reads, rows));
  BRAID_ASSIGN(ComputeResult result, function(batch, config_.algorithm, position_.algo));
  for (const Field& field : call.writes)
    BRAID_TRY(store_.put_reals(field.name, rows, result.fields.at(field.name)));
  merge(metrics_, result.metrics);
  return ok_status();
}

Status Session::begin_region(const Call& call) {
  if (call.kind == CallKind::kGenerate)
    return generation_.begin(*roles_.at(call.role.value).model, store_, store_.all_rows(),
                             position_.step);
  training_.begin(call, position_.step);
  return ok_status();
}

Status Session::generate_step(const Call&) { return generation_.round(); }

Status Session::run_schedule(const Call&) {
  const std::vector<Rows> parts = training_.begin_update();
  if (parts.empty()) return ok_status();
  const Schedule schedule = one_f_one_b(1, static_cast<int32_t>(parts.size()));
  for (const ScheduleOp& op : schedule.per_stage[0]) {
    if (op.kind == ScheduleOp::Kind::kForward)
      BRAID_TRY(training_.forward(op.micro_batch, parts[op.micro_batch])
                    .at(cat("micro-batch ", op.micro_batch)));
    else
      training_.backward(op.micro_batch);
  }
  return ok_status();
}

// One process agrees with itself.
Status Session::agree(const Call& call) {
  if (call.kind == CallKind::kGenerate) return ok_status();
  training_.norm();
  training_.agree();
  return ok_status();
}

Status Session::optimizer_step(const Call&) { return training_.update(); }

bool Session::region_done(ExitCondition exit) const {
  return exit == ExitCondition::kDrained ? generation_.drained() : training_.done();
}

Status Session::end_region(const Call& call) {
  if (call.kind != CallKind::kGenerate) return ok_status();
  BRAID_TRY(generation_.finish(store_));
  note_lengths(store_, store_.all_rows(), metrics_);
  return ok_status();
}

std::vector<Json> Session::sample_rows(size_t count) const {
  return braid::sample_rows(store_, data_.tokenizer_or_null(), position_.step - 1, count);
}

Status Session::export_models(const std::string& folder) const {
  return export_roles(roles_, config_, folder);
}

}  // namespace braid

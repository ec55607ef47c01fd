#include "passes/rehearsal.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "device/tensor_memory.h"
#include "plan/make_problem.h"
#include "weights/roles.h"

namespace braid::inline passes {
namespace {

constexpr int64_t kLengthsTried = 32;  // shares of the longest response

RolloutConfig without_tokenizer(RolloutConfig rollout) {
  rollout.stop.clear();
  return rollout;
}

const MiniBatch& largest(const Partition& partition) {
  return *std::max_element(
      partition.minibatches.begin(), partition.minibatches.end(),
      [](const MiniBatch& a, const MiniBatch& b) { return most_tokens(a) < most_tokens(b); });
}

// Of each rank only its longest micro-batch.
void keep_longest(MiniBatch* batch) {
  batch->rows.clear();
  for (size_t rank = 0; rank < batch->tokens.size(); ++rank) {
    std::vector<int64_t>& tokens = batch->tokens[rank];
    std::vector<SampleRows>& rows = batch->micro_batches[rank];
    if (rows.empty()) continue;
    const auto longest = std::max_element(tokens.begin(), tokens.end()) - tokens.begin();
    rows = {rows[longest]};
    tokens = {tokens[longest]};
    batch->rows.insert(batch->rows.end(), rows[0].begin(), rows[0].end());
  }
}

}  // namespace

Rehearsal::Rehearsal(const Config& config, const Program& program, RankModels& models,
                     Communicator* everyone, NeedsOfCalls& needs)
    : config_(config),
      rollout_(without_tokenizer(config.rollout)),
      program_(program),
      models_(models),
      everyone_(everyone),
      device_(model_options(config)->device),
      store_(program.graph),
      rows_(config, program, store_),
      work_(program, models, rows_, everyone, needs),
      generation_(rollout_, config.train.seed, nullptr),
      inference_(config.rollout.temperature, shares_prompts(config, program.graph)),
      training_(config, program.graph, models.roles(), store_, metrics_, ledger_, trained_) {
  for (const FusedCalls& fused : program.fused)
    for (const CallId call : fused.calls) rows_.run_alone(call);
}

// Memory of so many bytes; where it is not there that is noted.
at::Tensor Rehearsal::take(int64_t bytes) {
  try {
    return at::empty({bytes}, at::TensorOptions(device_).dtype(at::kByte));
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    note_shortage(what_ran_out(error));
  }
  return at::Tensor();
}

Status Rehearsal::run() {
  BRAID_ASSIGN(prompt_tokens_, longest_prompt());
  at_ = "copies of weights for roles that stay as they are";
  BRAID_TRY(models_.begin_step());
  const at::Tensor copies = take(frozen_copy_bytes(models_.roles(), config_));
  BRAID_TRY(run_list(program_, static_cast<size_t>(rank()), *this, [](const Call&, double) {}));
  return models_.end_moves();
}

Status Rehearsal::execute(const Instruction& instruction) {
  const Call& call = program_.graph.calls[instruction.call.value];
  if (instruction.kind == OpKind::kPasses && instruction.detail >= 0)
    return run_fused(program_.fused[instruction.detail]);
  if (!stands_between_calls(instruction.kind) && is_fused(instruction.call)) return ok_status();
  switch (instruction.kind) {
    case OpKind::kCall:
      return run_call(call);
    case OpKind::kRegionBegin:
      return begin_region(call);
    case OpKind::kRound:
      return round(call);
    case OpKind::kPasses:
      return run_passes(call);
    case OpKind::kReduce:
      return training_.reduce();
    case OpKind::kAgree:
      return call.kind == CallKind::kGenerate ? note_generation(generation_.settle()) : ok_status();
    case OpKind::kUpdate:
      return update(call);
    case OpKind::kRegionEnd:
      if (call.kind == CallKind::kGenerate) generation_.abandon();
      return ok_status();
    case OpKind::kReallocate:
      return reallocate(instruction.detail);
    case OpKind::kLoad:
      models_.begin_load(instruction.detail, instruction.layers);
      return ok_status();
    case OpKind::kOffload:
      models_.offload(instruction.detail);
      return ok_status();
    case OpKind::kRelease:
      models_.release(instruction.detail);
      return ok_status();
    case OpKind::kAllGather:  // updates nothing
    case OpKind::kShare:      // has samples of its own
    case OpKind::kExchange:
    case OpKind::kTally:
    case OpKind::kHandOver:
    case OpKind::kRepeat:
      return ok_status();
    default:
      break;
  }
  BRAID_CHECK(false, cat(op_kind_name(instruction.kind), " is no instruction of a list"));
}

Status Rehearsal::begin_ahead(const Instruction& instruction) {
  if (instruction.kind == OpKind::kLoad) models_.begin_load(instruction.detail, instruction.layers);
  return ok_status();
}

Status Rehearsal::wait_for(const Instruction& instruction) {
  return instruction.kind == OpKind::kReallocate ? models_.reallocated(instruction.detail)
                                                 : ok_status();
}

Status Rehearsal::reallocate(int32_t entry) {
  at_ = cat("weights of ", program_.copies[program_.reallocations[entry].copy].role,
            " in another layout");
  return models_.reallocate(entry);
}

// Data may be far shorter than they may be: prompts leave room for responses in the positions of
// the models, as those of a step that does not fail do. The same on all ranks.
Result<int64_t> Rehearsal::longest_prompt() const {
  int64_t out = config_.data.max_prompt_length;
  for (const RoleSpec& role : program_.graph.roles) {
    if (is_scorer(role)) continue;  // may read texts in tokens of its own
    BRAID_ASSIGN(const Origin origin, role_origin(config_, role));
    BRAID_ASSIGN(const ModelSpec spec, origin_spec(origin, role.scalar_head, role.value_head));
    if (spec.max_positions > 0)
      out = std::min(out, spec.max_positions - config_.rollout.max_response_length);
  }
  return std::max<int64_t>(out, 1);
}

// As many samples as a step has in flight, with prompts as long as they may be; those of a group
// are alike.
Status Rehearsal::begin_samples() {
  const Call& fetch = program_.graph.calls.front();
  const int64_t of_prompt = generates(program_.graph) ? config_.rollout.samples_per_prompt : 1;
  const int64_t copies = fetch.function == "pairs" ? 2 : of_prompt;
  std::vector<StoredSample> samples;
  TokenLists prompts;
  for (int64_t p = 0; p < prompts_in_flight(config_.rollout); ++p)
    for (int64_t k = 0; k < copies; ++k) {
      samples.push_back({SampleId{p * copies + k}, GroupId{p}, "", Json::object(), {}});
      prompts.emplace_back(prompt_tokens_, 0);
      // Prompts of two groups differ, or they would be computed once.
      int64_t rest = p;
      for (int32_t& token : prompts.back()) token = static_cast<int32_t>(rest % 2), rest /= 2;
    }
  store_.begin(std::move(samples));
  rows_.forget();
  BRAID_TRY(store_.put_tokens("prompt_ids", store_.all_rows(), std::move(prompts)));
  return put_fields(FieldShape::kPerSample, static_cast<int64_t>(store_.size()));
}

// Values for all real fields of a shape, of so many numbers each.
Status Rehearsal::put_fields(FieldShape shape, int64_t numbers) {
  const Rows rows = store_.all_rows();
  for (const Call& call : program_.graph.calls)
    for (const Field& field : call.writes) {
      if (field.type == FieldType::kTokens || field.type == FieldType::kCount) continue;
      if (field.shape != shape) continue;
      // What a mask leaves out would have no loss.
      const at::Tensor values =
          field.name == "loss_mask" ? at::ones({numbers}) : at::zeros({numbers});
      BRAID_TRY(store_.put_reals(field.name, rows, values));
    }
  return ok_status();
}

Status Rehearsal::put_responses(int64_t tokens) {
  const Rows rows = store_.all_rows();
  for (const Call& call : program_.graph.calls)
    for (const Field& field : call.writes)
      if (field.type == FieldType::kTokens && field.shape == FieldShape::kPerToken)
        BRAID_TRY(store_.put_tokens(field.name, rows,
                                    TokenLists(rows.size(), std::vector<int32_t>(tokens, 0))));
  return put_fields(FieldShape::kPerToken, static_cast<int64_t>(rows.size()) * tokens);
}

// The partition with the longest micro-batch of the call: with a budget of tokens that is not
// always the one of the longest samples, several of which may leave much of it free.
Status Rehearsal::partition_longest(const Call& call) {
  const CallId id = id_of(call);
  const int64_t longest = config_.rollout.max_response_length;
  BRAID_TRY(begin_samples());
  int64_t best = longest, most = -1;
  for (int64_t share = kLengthsTried; share > 0; --share) {
    const int64_t tokens = std::max<int64_t>(1, longest * share / kLengthsTried);
    store_.set_lens_of(call, std::vector<int64_t>(store_.size(), tokens));
    rows_.forget();
    const int64_t found = most_tokens(largest(rows_.partition_whole(id, 0)));
    if (found > most) best = tokens, most = found;
  }
  BRAID_TRY(begin_samples());
  BRAID_TRY(put_responses(best));
  const Partition all = rows_.partition_whole(id, 0);
  partition_ = {{largest(all)}, all.owned};
  // Stages of a pipeline hold several micro-batches at once.
  if (rows_.frame(id).where->strategy.pp == 1) keep_longest(&partition_.minibatches[0]);
  return ok_status();
}

std::string Rehearsal::micro_batch_text() const {
  return cat("its longest micro-batch, ", most_tokens(partition_.minibatches[0]), " tokens");
}

void Rehearsal::note_shortage(const std::string& detail) {
  if (!detail.empty() && shortage_.place.empty()) shortage_ = {at_, detail};
}

Status Rehearsal::run_call(const Call& call) {
  const bool loaded = models_.roles().count(call.role.value) > 0;  // rewards may not be asked
  const bool computes = call.kind == CallKind::kInfer || call.kind == CallKind::kReward;
  if (!computes || !loaded) return ok_status();
  BRAID_TRY(partition_longest(call));
  at_ = cat("call ", call.name, ", ", micro_batch_text());
  BRAID_ASSIGN(InferWork work, work_.inference(id_of(call), partition_));
  const PeakMeter meter(work.model->options().device);
  BRAID_ASSIGN(const InferredRows done, inference_.run(std::move(work), store_));
  activation_bytes_ = std::max(activation_bytes_, meter.most_bytes());
  note_shortage(done.why);
  return ok_status();
}

Status Rehearsal::open_training(const Call& call) {
  BRAID_TRY(partition_longest(call));
  at_ = cat("call ", call.name, ", ", micro_batch_text());
  BRAID_ASSIGN(TrainWork work, work_.training(id_of(call), partition_));
  training_.begin(call, std::move(work), config_.critic.warmup_steps);
  return ok_status();
}

bool Rehearsal::is_fused(CallId call) const {
  return std::any_of(program_.fused.begin(), program_.fused.end(), [&](const FusedCalls& fused) {
    return fused.calls[0] == call || fused.calls[1] == call;
  });
}

Status Rehearsal::run_fused(const FusedCalls& fused) {
  for (const CallId id : fused.calls) {
    const Call& call = program_.graph.calls[id.value];
    BRAID_TRY(open_training(call));
    BRAID_TRY(run_passes(call));
    BRAID_TRY(training_.reduce());
    BRAID_TRY(update(call));
  }
  return ok_status();
}

Status Rehearsal::begin_region(const Call& call) {
  if (call.kind == CallKind::kTrainStep) return open_training(call);
  const CallId id = id_of(call);
  at_ = cat("call ", call.name, ", the KV cache at its full size");
  if (!rollout_.replay.empty()) return ok_status();
  BRAID_TRY(begin_samples());
  BRAID_ASSIGN(std::unique_ptr<EngineRanks> ranks, work_.generation(id));
  BRAID_TRY(generation_.begin(call, models_.model(id), std::move(ranks), store_,
                              rows_.mine(id, 0, rank()), 0));
  cache_bytes_ = generation_.cache_bytes();
  return ok_status();
}

// What generation makes do with is less than there should be room for.
Status Rehearsal::note_generation(const Status& status) {
  if (!status.ok() && status.code() != Code::kOutOfMemory) return status;
  note_shortage(generation_.shortage());
  if (!status.ok()) note_shortage(status.message());
  return ok_status();
}

Status Rehearsal::round(const Call& call) {
  const Status room = generation_.make_room();
  BRAID_TRY(note_generation(room));
  if (!room.ok() || generation_.cuts() > 0) return ok_status();
  at_ = cat("call ", call.name, ", a round of generation beside the whole KV cache");
  return note_generation(generation_.round());
}

Status Rehearsal::run_passes(const Call& call) {
  const PeakMeter meter(models_.model(id_of(call)).options().device);
  BRAID_TRY(training_.pass());
  activation_bytes_ = std::max(activation_bytes_, meter.most_bytes());
  note_shortage(training_.why_ran_out());
  return ok_status();
}

Status Rehearsal::update(const Call& call) {
  at_ = cat("call ", call.name, ", its update");
  take(training_.update_bytes());
  training_.abandon();
  return ok_status();
}

}  // namespace braid::inline passes

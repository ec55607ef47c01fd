#include "passes/replica_round.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/rng.h"
#include "base/text.h"
#include "device/tensor_memory.h"
#include "program/verify_ops.h"

namespace braid::inline passes {
namespace {

constexpr int64_t kRoundsBetweenChecks = 64;

// Batches of whole sequences, whose rows follow each other.
std::vector<TokenBatch> cut_batch(const TokenBatch& batch, int stages) {
  const AttentionBatch& attention = batch.attention;
  std::vector<int64_t> tokens;
  for (size_t i = 0; i + 1 < attention.query_begin.size(); ++i)
    tokens.push_back(attention.query_begin[i + 1] - attention.query_begin[i]);
  const std::vector<int64_t> sequences = cut_round(tokens, stages);
  if (sequences.size() == 1) return {batch};
  std::vector<TokenBatch> out;
  size_t first = 0;
  for (const int64_t count : sequences) {
    TokenBatch& part = out.emplace_back();
    const size_t end = first + count;
    const int64_t begin = attention.query_begin[first];
    const int64_t rows = attention.query_begin[end] - begin;
    part.tokens_T = batch.tokens_T.narrow(0, begin, rows);
    part.positions_T = batch.positions_T.narrow(0, begin, rows);
    part.attention.window = attention.window;
    for (size_t i = first; i <= end; ++i)
      part.attention.query_begin.push_back(attention.query_begin[i] - static_cast<int32_t>(begin));
    part.attention.cached = {attention.cached.begin() + first, attention.cached.begin() + end};
    part.attention.page_tables = {attention.page_tables.begin() + first,
                                  attention.page_tables.begin() + end};
    first = end;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<ReplicaRound>> ReplicaRound::create(const CallFrame& frame, DeviceId rank,
                                                           const CallGroups& groups,
                                                           Communicator& everyone) {
  BRAID_CHECK(groups.replica != nullptr, "a replica of one rank needs no messages");
  const RoundWork any{1, 2, true, {1, 2}};  // ops of all rounds are alike
  std::vector<Expansion> ranks;
  for (const DeviceId device : frame.where->mesh.devices)
    ranks.push_back(expand(frame, device, any));
  BRAID_TRY(verify_round(frame, ranks, any));
  return std::unique_ptr<ReplicaRound>(new ReplicaRound(frame, rank, *groups.replica, everyone));
}

Result<EngineRound> ReplicaRound::round(Model& model, const EngineBatch& batch,
                                        const std::vector<KvLayer>& kv, int64_t due,
                                        const DrawTokens& draw) {
  const bool limited = free_tensor_bytes(model.options().device).has_value();
  const bool agrees = ++rounds_ % kRoundsBetweenChecks == 0 || limited;
  batches_ = cut_batch(batch.tokens, frame_.where->strategy.pp);
  RoundWork work{batch.prefill_tokens, batch.decoding, agrees};
  for (const TokenBatch& each : batches_) work.batches.push_back(each.tokens_T.size(0));
  const Expansion ops = expand(frame_, rank_, work);
  ModelPass pass(model, &everyone_, nullptr);
  pass.use_caches(kv);
  EngineRound out;
  out.drawn.resize(due);
  Status failed;
  for (const Op& op : ops.ops) {
    if (ModelPass::runs(op.kind)) {
      BRAID_TRY(pass.run(op, ops.bodies[op.body], *this));
    } else if (op.kind == OpKind::kSample) {
      failed = sample(model, pass, draw, &out);
    } else if (op.kind == OpKind::kBroadcast) {
      BRAID_TRY(tell(ops.groups[op.group], &out.drawn));
    } else {
      BRAID_CHECK(op.kind == OpKind::kAgree, cat(op_kind_name(op.kind), " is no part of a round"));
      BRAID_ASSIGN(out.ran_out, agree(seen_with(out.drawn), !pass.ran_out().empty()));
    }
  }
  BRAID_TRY(pass.finish());
  drop();
  out.why = pass.ran_out();
  // Nobody asked: the others have gone on.
  if (!agrees && !out.why.empty()) return Status(Code::kOutOfMemory, out.why);
  if (out.ran_out) return out;
  BRAID_TRY(failed);
  seen_ = seen_with(out.drawn);
  return out;
}

uint64_t ReplicaRound::seen_with(const std::vector<SampledToken>& drawn) const {
  uint64_t seen = seen_;
  for (const SampledToken& token : drawn) seen = mix_seed(seen, static_cast<uint64_t>(token.token));
  return seen;
}

Status ReplicaRound::outputs(int32_t, const at::Tensor& hidden_TH) {
  hidden_.push_back(hidden_TH);
  return ok_status();
}

Result<at::Tensor> ReplicaRound::loss(int32_t) { BRAID_CHECK(false, "a round has no loss"); }

// A rank whose memory runs out, or has run out, does with the others what drawing does.
Status ReplicaRound::sample(Model& model, ModelPass& pass, const DrawTokens& draw,
                            EngineRound* out) {
  if (out->drawn.empty()) return ok_status();
  Communicator* const tensor = model.options().tensor_parallel.communicator;
  const int64_t begun = tensor == nullptr ? 0 : tensor->begun();
  if (pass.ran_out().empty()) try {
      BRAID_ASSIGN(out->drawn, draw(hidden_.size() == 1 ? hidden_.front() : at::cat(hidden_)));
      return ok_status();
    } catch (const CommunicationFailure&) {
      throw;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      pass.give_up(*this, what_ran_out(error));
    }
  if (tensor == nullptr) return ok_status();
  tensor->leave_out(tensor->begun() - begun);
  pass_by_logits(model, static_cast<int64_t>(out->drawn.size()));
  return ok_status();
}

Result<bool> ReplicaRound::any(bool here, const std::string& what) {
  return on_any_rank(here, &replica_, what);
}
// A double holds a token and an f32 exactly.
Status ReplicaRound::tell(const OpGroup& group, std::vector<SampledToken>* drawn) {
  const auto count = static_cast<int64_t>(drawn->size());
  const at::Tensor numbers = at::empty({count, 2}, at::kDouble);
  double* values = numbers.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i)
    values[2 * i] = (*drawn)[i].token, values[2 * i + 1] = (*drawn)[i].logprob;
  BRAID_TRY(replica_.broadcast(numbers, group.members.front().value, "tokens of a round").wait());
  for (int64_t i = 0; i < count; ++i)
    (*drawn)[i] = {static_cast<int32_t>(values[2 * i]), static_cast<float>(values[2 * i + 1])};
  return ok_status();
}

// Whether memory ran out on any rank.
Result<bool> ReplicaRound::agree(uint64_t seen, bool ran_out) {
  const auto mine = static_cast<int64_t>(seen >> 1);
  // Largest and - smallest.
  const at::Tensor extremes = at::tensor({mine, -mine, int64_t{ran_out}}, at::kLong);
  BRAID_TRY(replica_.all_reduce(extremes, Reduce::kMax, "a hash of the tokens").wait());
  const int64_t* values = extremes.const_data_ptr<int64_t>();
  if (values[2] > 0 || values[0] == -values[1]) return values[2] > 0;
  return Status{Code::kUnavailable,
                cat("the ranks of this replica have drawn different tokens by round ", rounds_,
                    ": they do not compute alike; start again from the last checkpoint")};
}

}  // namespace braid::inline passes

#include "passes/replica_round.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/rng.h"
#include "base/text.h"
#include "comm/transfer_audit.h"
#include "device/tensor_memory.h"
#include "passes/transfer_check.h"

namespace braid::inline passes {
namespace {

// Of logits, with what pads the ranks' parts to equal ones.
int64_t gathered_bytes(const Model& model, int64_t rows) {
  const int64_t ranks = model.options().tensor_parallel.tp_size;
  const int64_t widest = (model.spec().vocab + ranks - 1) / ranks;
  return rows * widest * ranks * static_cast<int64_t>(sizeof(float));
}

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

std::unique_ptr<ReplicaRound> ReplicaRound::create(const CallFrame& frame, DeviceId rank,
                                                   const CallGroups& groups, Communicator& everyone,
                                                   ChangeOps change) {
  BRAID_CHECK(groups.replica != nullptr || groups.weights != nullptr,
              "a replica of one rank that has its weights needs no messages");
  return std::unique_ptr<ReplicaRound>(
      new ReplicaRound(frame, rank, groups, everyone, std::move(change)));
}

Result<EngineRound> ReplicaRound::round(Model& model, const EngineBatch& batch,
                                        const std::vector<KvLayer>& kv, int64_t due,
                                        const DrawTokens& draw) {
  const bool agrees = agreements_in(rounds_, 1, due) > 0;
  ++rounds_;
  // Ranks that bring weights together make one pass each.
  batches_ = cut_batch(batch.tokens, weights_ == nullptr ? frame_.where->strategy.pp : 1);
  RoundWork work{batch.prefill_tokens, batch.decoding, agrees};
  work.due = due;
  work.sampling = batch.sampling;
  for (const TokenBatch& each : batches_) work.batches.push_back(each.tokens_T.size(0));
  ops_ = expand(frame_, rank_, work);
  if (change_) change_(&ops_);
  ModelPass pass(model, &everyone_, weights_);
  caches_ = &kv;
  pass.tell_shortage();
  // A list has no gathers of a generation: plans keep its weights whole.
  check_ = weights_ == nullptr ? TransferCheck(frame_, model, false) : TransferCheck();
  const TransferCheck::Counting counting(check_);
  EngineRound out;
  out.drawn.resize(due);
  failed_ = ok_status();
  for (const Op& op : ops_.ops) {
    if (op.run != OpKind::kRound) continue;
    if (ModelPass::runs(op.kind)) {
      BRAID_TRY(pass.run(op, ops_.bodies[op.body], *this));
    } else if (op.kind == OpKind::kSample) {
      model.hold_head();
      failed_ = sample(model, pass, draw, &out);
      model.let_go();
      if (gathered_rows_ > 0)
        check_.expect(ops_.groups[op.group], OpKind::kAllGather,
                      gathered_bytes(model, gathered_rows_), 1);
    } else {
      BRAID_CHECK(op.kind == OpKind::kBroadcast,
                  cat(op_kind_name(op.kind), " is no part of a round"));
      BRAID_TRY(tell(ops_.groups[op.group], &out));
    }
    OpRows rows = pass.rows(op);
    rows.drawn = due;
    check_.expect(ops_, op, rows);
  }
  BRAID_TRY(pass.finish());
  drop();
  out.why = pass.ran_out();
  if (due == 0) out.ran_out = pass.gave_up();
  // Nobody knows: the others go on.
  if (!out.ran_out && pass.gave_up()) return Status(Code::kOutOfMemory, out.why);
  return out;
}

Status ReplicaRound::agree(EngineRound* round) {
  const uint64_t seen = seen_with(round->drawn);
  for (const Op& op : ops_.ops)
    if (op.run == OpKind::kAgree) {
      const TransferCheck::Counting counting(check_);
      BRAID_ASSIGN(round->ran_out, compare(seen, round->ran_out));
      check_.expect(ops_, op, {});
    }
  if (round->ran_out) return ok_status();
  BRAID_TRY(failed_);
  check_.settle("a round of generation");
  seen_ = seen;
  return ok_status();
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

// A rank whose memory runs out, or has run out, does with the others what drawing does, and tells
// them.
Status ReplicaRound::sample(Model& model, ModelPass& pass, const DrawTokens& draw,
                            EngineRound* out) {
  gathered_rows_ = 0;
  if (out->drawn.empty()) return ok_status();
  const auto take = [&](DrawnTokens drawn) {
    gathered_rows_ = drawn.gathered_rows;
    out->ran_out = drawn.ran_out;
    if (!drawn.ran_out) out->drawn = std::move(drawn.tokens);
    return ok_status();
  };
  if (!pass.gave_up()) try {
      const at::Tensor hidden = hidden_.size() == 1 ? hidden_.front() : at::cat(hidden_);
      BRAID_ASSIGN(DrawnTokens drawn, draw(hidden));
      return take(std::move(drawn));
    } catch (const CommunicationFailure&) {
      throw;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      pass.give_up(*this, what_ran_out(error));
    }
  if (model.options().tensor_parallel.communicator == nullptr) {
    out->ran_out = true;
    return ok_status();
  }
  BRAID_ASSIGN(DrawnTokens told, draw({}));
  return take(std::move(told));
}

Result<bool> ReplicaRound::any(bool here, const std::string& what) {
  const RanksTalk talk;
  return on_any_rank(here, replica_, what);
}

void ReplicaRound::pass_by(Model& model) {
  for (size_t range = 0; range < model.ranges().size(); ++range)
    model.pass_by({.cached = true, .range = range});
  if (model.has_last()) model.hold_head();
  model.let_go();
}

// A double holds a token and an f32 exactly. Of a round in which memory ran out the tokens are -1.
Status ReplicaRound::tell(const OpGroup& group, EngineRound* out) {
  const auto count = static_cast<int64_t>(out->drawn.size());
  const at::Tensor numbers = at::empty({count, 2}, at::kDouble);
  double* values = numbers.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    values[2 * i] = out->ran_out ? -1 : out->drawn[i].token;
    values[2 * i + 1] = out->drawn[i].logprob;
  }
  BRAID_TRY(replica_->broadcast(numbers, group.members.front().value, "tokens of a round").wait());
  for (int64_t i = 0; i < count; ++i)
    out->drawn[i] = {static_cast<int32_t>(values[2 * i]), static_cast<float>(values[2 * i + 1])};
  out->ran_out = count > 0 && values[0] < 0;
  return ok_status();
}

// Whether memory ran out on any rank.
Result<bool> ReplicaRound::compare(uint64_t seen, bool ran_out) {
  const auto mine = static_cast<int64_t>(seen >> 1);
  // Largest and - smallest.
  const at::Tensor extremes = at::tensor({mine, -mine, int64_t{ran_out}}, at::kLong);
  BRAID_TRY(replica_->all_reduce(extremes, Reduce::kMax, "a hash of the tokens").wait());
  const int64_t* values = extremes.const_data_ptr<int64_t>();
  if (values[2] > 0 || values[0] == -values[1]) return values[2] > 0;
  return Status{Code::kUnavailable,
                cat("the ranks of this replica have drawn different tokens by round ", rounds_,
                    ": they do not compute alike; start again from the last checkpoint")};
}

}  // namespace braid::inline passes

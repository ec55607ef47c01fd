#include "runtime/replica_round.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "base/rng.h"
#include "base/text.h"
#include "program/verify_ops.h"

namespace braid {
namespace {

constexpr int64_t kRoundsBetweenChecks = 64;
constexpr const char* kHiddenStates = "hidden states of a round";

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

int32_t round_channel(const Op& op) { return static_cast<int32_t>(op.channel); }

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

Result<at::Tensor> ReplicaRound::forward(Model& model, const EngineBatch& batch,
                                         const std::vector<KvLayer>& kv) {
  const bool agrees = ++rounds_ % kRoundsBetweenChecks == 0;
  const std::vector<TokenBatch> batches = cut_batch(batch.tokens, frame_.where->strategy.pp);
  RoundWork work{batch.prefill_tokens, batch.decoding, agrees};
  for (const TokenBatch& each : batches) work.batches.push_back(each.tokens_T.size(0));
  ops_ = expand(frame_, rank_, work);
  std::vector<at::Tensor> outputs;
  at::Tensor hidden;
  for (next_ = 0; next_ < ops_.ops.size(); ++next_) {
    const Op& op = ops_.ops[next_];
    if (op.kind == OpKind::kReceive) {
      BRAID_ASSIGN(hidden, receive(op, model, work.batches[op.micro_batch]));
    } else if (op.kind == OpKind::kForward) {
      hidden = model.forward(batches[op.micro_batch], &kv, hidden);
      if (ops_.bodies.front().head) outputs.push_back(hidden);
    } else if (op.kind == OpKind::kSend) {
      const at::Tensor data = hidden.contiguous();
      sending_.emplace_back(data,
                            everyone_.send(data, op.peer.value, round_channel(op), kHiddenStates));
      hidden.reset();
    } else {
      break;
    }
  }
  if (outputs.size() < 2) return outputs.empty() ? at::Tensor() : outputs.front();
  return at::cat(outputs);
}

Result<at::Tensor> ReplicaRound::receive(const Op& op, const Model& model, int64_t rows) {
  const ModelOptions& options = model.options();
  const at::Tensor room = at::empty({rows, model.spec().hidden},
                                    at::TensorOptions(options.device).dtype(options.dtype));
  BRAID_TRY(everyone_.receive(room, op.peer.value, round_channel(op), kHiddenStates).wait());
  return room;
}

Status ReplicaRound::share(std::vector<SampledToken>* drawn) {
  bool agrees = false;
  for (; next_ < ops_.ops.size(); ++next_) {
    const Op& op = ops_.ops[next_];
    if (op.kind == OpKind::kBroadcast) BRAID_TRY(tell(ops_.groups[op.group], drawn));
    agrees = agrees || op.kind == OpKind::kAgree;
  }
  for (auto& [data, pending] : sending_) BRAID_TRY(pending.wait());
  sending_.clear();
  for (const SampledToken& token : *drawn)
    seen_ = mix_seed(seen_, static_cast<uint64_t>(token.token));
  return agrees ? agree() : ok_status();
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

Status ReplicaRound::agree() {
  const auto mine = static_cast<int64_t>(seen_ >> 1);
  const at::Tensor extremes = at::tensor({mine, -mine}, at::kLong);  // largest and - smallest
  BRAID_TRY(replica_.all_reduce(extremes, Reduce::kMax, "a hash of the tokens").wait());
  const int64_t* values = extremes.const_data_ptr<int64_t>();
  if (values[0] == -values[1]) return ok_status();
  return {Code::kUnavailable,
          cat("the ranks of this replica have drawn different tokens by round ", rounds_,
              ": they do not compute alike; start again from the last checkpoint")};
}

}  // namespace braid

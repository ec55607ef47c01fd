#include "passes/model_pass.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "base/text.h"
#include "device/tensor_memory.h"

namespace braid::inline passes {
namespace {

// Of a type, below all hidden states: in front of those that a rank gives which lacks memory.
double least_number(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "least_number", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::lowest());
  });
}

}  // namespace

const std::vector<KvLayer>& PassEnds::caches(int32_t micro_batch) {
  BRAID_CHECK(false, cat("micro-batch ", micro_batch, " has no caches"));
}

bool ModelPass::runs(OpKind kind) {
  return kind == OpKind::kForward || kind == OpKind::kBackward || kind == OpKind::kLoss ||
         kind == OpKind::kSend || kind == OpKind::kReceive;
}

Status ModelPass::run(const Op& op, const OpBody& body, PassEnds& ends) {
  model_.cut_rows(body.sequence_sharded);
  if (ends.empty(op.micro_batch)) return pass_by(op, ends);
  if (gave_up_) return stand_in(op, body, ends);
  std::vector<int64_t> begun;
  for (const Communicator* group : groups_inside()) begun.push_back(group->begun());
  try {
    return execute_measured(op, body, ends);
  } catch (const CommunicationFailure&) {
    throw;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    give_up(ends, what_ran_out(error));
  }
  // The others are within this op and wait for the rest of what the ranks do in it.
  for (size_t i = 0; i < begun.size(); ++i)
    groups_inside()[i]->leave_out(groups_inside()[i]->begun() - begun[i]);
  BRAID_TRY(stand_in(op, body, ends));
  for (const Communicator* group : groups_inside())
    BRAID_CHECK(!group->leaves_out(), cat("ranks of ", group->name(), " do less together in a ",
                                          op_kind_name(op.kind), " than this rank did"));
  return ok_status();
}

void ModelPass::measure(PassNeeds& needs, std::function<int64_t(int32_t)> tokens) {
  needs_ = &needs;
  tokens_ = std::move(tokens);
}

Status ModelPass::execute_measured(const Op& op, const OpBody& body, PassEnds& ends) {
  if (needs_ == nullptr) {
    BRAID_TRY(execute(op, body, ends));
    held_.note(op, 0);
    return ok_status();
  }
  const PeakMeter meter(model_.options().device);
  BRAID_TRY(execute(op, body, ends));
  held_.note(op, meter.kept_bytes());
  // What is over caches takes another amount for its tokens.
  const bool computes = op.kind == OpKind::kForward || op.kind == OpKind::kBackward;
  if (computes && !ends.cached(op.micro_batch))
    needs_->note(op, tokens_(op.micro_batch), meter.most_bytes(), meter.kept_bytes());
  return ok_status();
}

std::vector<KvLayer> ModelPass::caches_of(int32_t range, const std::vector<KvLayer>& all) const {
  const std::vector<LayerRange>& ranges = model_.ranges();
  int64_t begin = 0;
  for (int32_t before = 0; before < range; ++before)
    begin += ranges[before].end - ranges[before].begin;
  const int64_t layers = ranges[range].end - ranges[range].begin;
  return {all.begin() + begin, all.begin() + begin + layers};
}

std::vector<Communicator*> ModelPass::groups_inside() const {
  std::vector<Communicator*> out;
  for (Communicator* group : {model_.options().tensor_parallel.communicator, weights_})
    if (group != nullptr) out.push_back(group);
  return out;
}

void ModelPass::give_up(PassEnds& ends, const std::string& why) {
  gave_up_ = true;
  ran_out_ = why;
  passages_.clear();
  losses_.clear();
  ends.drop();
  model_.rest();
}

int64_t ModelPass::rows_between_stages(int64_t rows, const OpBody& body, bool cached) const {
  TensorParallelGroup group = over_caches(model_.options().tensor_parallel);
  group.sequence_parallel = body.sequence_sharded && !cached;
  return kept_rows(rows, group);
}

Status ModelPass::stand_in(const Op& op, const OpBody& body, PassEnds& ends) {
  const bool computes = op.kind == OpKind::kForward || op.kind == OpKind::kBackward;
  if (op.kind == OpKind::kLoss || (computes && groups_inside().empty())) return ok_status();
  BRAID_ASSIGN(const TokenBatch tokens, ends.tokens(op.micro_batch));
  const int64_t rows = tokens.tokens_T.size(0);
  if (computes) {
    model_.pass_by({.backward = op.kind == OpKind::kBackward,
                    .cached = ends.cached(op.micro_batch),
                    .rows = rows,
                    .head_rows = body.head ? ends.head_rows(op.micro_batch) : std::nullopt,
                    .range = static_cast<size_t>(op.body),
                    .passed = [&](int64_t unit) { ends.passed_by(unit); }});
    return ok_status();
  }
  const ModelOptions& options = model_.options();
  const at::Tensor zeros = at::zeros(
      {rows_between_stages(rows, body, ends.cached(op.micro_batch)), model_.spec().hidden},
      at::TensorOptions(options.device).dtype(options.dtype));
  if (op.kind == OpKind::kReceive) return stages_.receive(op, zeros);
  if (tells_) zeros.view(-1)[0].fill_(least_number(zeros.scalar_type()));
  stages_.send(op, zeros);
  return ok_status();
}

Status ModelPass::execute(const Op& op, const OpBody& body, PassEnds& ends) {
  const at::AutoGradMode gradients(body.trains);
  switch (op.kind) {
    case OpKind::kForward:
      return forward(op, body, ends);
    case OpKind::kLoss: {
      BRAID_ASSIGN(losses_[op.micro_batch], ends.loss(op.micro_batch));
      return ok_status();
    }
    case OpKind::kBackward:
      return backward(op, body);
    case OpKind::kReceive:
      return receive(op, body, ends);
    case OpKind::kSend:
      return send(op, body);
    default:
      break;
  }
  BRAID_CHECK(false, cat(op_kind_name(op.kind), " is no part of a pass"));
}

Status ModelPass::pass_by(const Op& op, PassEnds& ends) {
  if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward) return ok_status();
  model_.pass_by({.backward = op.kind == OpKind::kBackward,
                  .range = static_cast<size_t>(op.body),
                  .passed = [&](int64_t unit) { ends.passed_by(unit); }});
  return ok_status();
}

Status ModelPass::forward(const Op& op, const OpBody& body, PassEnds& ends) {
  Passage& passage = passages_[place(op)];
  BRAID_ASSIGN(const TokenBatch tokens, ends.tokens(op.micro_batch));
  rows_[op.micro_batch] = {tokens.tokens_T.size(0),
                           body.head ? ends.head_rows(op.micro_batch).value_or(0) : 0};
  const bool cached = ends.cached(op.micro_batch);
  std::vector<KvLayer> caches;
  if (cached) caches = caches_of(op.body, ends.caches(op.micro_batch));
  passage.out = model_.forward(tokens, cached ? &caches : nullptr, passage.in, op.body);
  if (body.head) BRAID_TRY(ends.outputs(op.micro_batch, passage.out));
  model_.let_go();
  if (!body.head) return ok_status();
  passage.out.reset();
  if (!body.trains) passages_.erase(place(op));
  return ok_status();
}

Status ModelPass::backward(const Op& op, const OpBody& body) {
  Passage& passage = passages_.at(place(op));
  if (body.head) {
    model_.hold_head();
    const auto loss = losses_.find(op.micro_batch);
    BRAID_CHECK(loss != losses_.end(), cat("no loss of micro-batch ", op.micro_batch));
    loss->second.backward();
    losses_.erase(loss);
  } else {
    // Below all adapters nothing is trained.
    if (passage.out.requires_grad()) passage.out.backward(passage.out_gradient);
    passage.out.reset();
  }
  if (body.embedding) passages_.erase(place(op));
  model_.let_go();
  return ok_status();
}

Status ModelPass::receive(const Op& op, const OpBody& body, PassEnds& ends) {
  Passage& passage = passages_[place(op)];
  const bool activations = op.channel == Channel::kActivations;
  at::Tensor room;
  if (activations) {
    BRAID_ASSIGN(const TokenBatch tokens, ends.tokens(op.micro_batch));
    const ModelOptions& options = model_.options();
    const int64_t rows =
        rows_between_stages(tokens.tokens_T.size(0), body, ends.cached(op.micro_batch));
    room = at::empty({rows, model_.spec().hidden},
                     at::TensorOptions(options.device).dtype(options.dtype));
  } else {
    room = at::empty_like(passage.out.detach(), at::MemoryFormat::Contiguous);
  }
  BRAID_TRY(stages_.receive(op, room));
  if (!activations) {
    passage.out_gradient = room;
    return ok_status();
  }
  if (tells_ && room.view(-1)[0].item<double>() == least_number(room.scalar_type())) {
    give_up(ends, "");
    return ok_status();
  }
  if (body.trains) room.set_requires_grad(true);
  passage.in = room;
  return ok_status();
}

Status ModelPass::send(const Op& op, const OpBody& body) {
  const auto found = passages_.find(place(op));
  BRAID_CHECK(found != passages_.end(), cat("nothing to send of micro-batch ", op.micro_batch));
  Passage& passage = found->second;
  const bool activations = op.channel == Channel::kActivations;
  const at::Tensor data = (activations ? passage.out.detach() : passage.in.grad()).contiguous();
  stages_.send(op, data);
  // What remains is the graph, for the backward.
  const bool done = !activations || !body.trains;
  if (done) passages_.erase(found);
  return ok_status();
}

OpRows ModelPass::rows(const Op& op) const {
  const auto found = rows_.find(op.micro_batch);
  return found == rows_.end() ? OpRows() : found->second;
}

Status ModelPass::finish() {
  BRAID_TRY(stages_.finish());
  BRAID_CHECK(gave_up_ || (losses_.empty() && passages_.empty()),
              "a micro-batch has not passed to its end");
  return ok_status();
}

}  // namespace braid::inline passes

#include "passes/inference.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "base/text.h"
#include "device/device_copy.h"
#include "device/tensor_memory.h"
#include "host/work_section.h"
#include "passes/transfer_check.h"
#include "samples/call_groups.h"
#include "samples/call_rows.h"

namespace braid::inline passes {

at::Tensor infer_hidden(Model& model, Inferred what, const ResponseRows& rows,
                        const at::Tensor& hidden_TH, double temperature) {
  const at::Tensor selected =
      at::index_select(hidden_TH, 0, what == Inferred::kScores ? rows.last_S : rows.rows_R);
  if (what != Inferred::kLogprobs) return scalar_outputs(model, selected);
  return head_logprobs(model, selected, rows.targets_R, temperature).logprobs_N;
}

std::map<size_t, double> by_row(const InferredRows& inferred) {
  std::map<size_t, double> out;
  if (inferred.rows.empty()) return out;
  const at::Tensor values = to_host(inferred.values).contiguous();
  for (size_t i = 0; i < inferred.rows.size(); ++i)
    out[inferred.rows[i]] = values.const_data_ptr<float>()[i];
  return out;
}

Rows Inference::rows_of_batch(int32_t index) const {
  return rows_of(work_.partition->minibatches[0].micro_batches[work_.ops.at.dp_rank][index]);
}

Result<TokenBatch> Inference::tokens(int32_t index) {
  if (cached(index)) {
    BRAID_ASSIGN(const ResponseRows* packed, begun_.packed(index, rows_of_batch(index)));
    return packed->batch;
  }
  return packed_.tokens(index, *store_, store_->responses_of(*work_.call), rows_of_batch(index),
                        work_.model->options().device);
}

Status Inference::outputs(int32_t index, const at::Tensor& hidden_TH) {
  at::Tensor values =
      infer_hidden(*work_.model, work_.what, rows_in(index), hidden_TH, temperature_);
  const Rows rows = rows_of_batch(index);
  if (cached(index)) {
    values = begun_.take_values(index, values);
    if (!values.defined()) return ok_status();
  } else {
    packed_.erase(index);
  }
  parts_.push_back(values);
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  return ok_status();
}

Result<at::Tensor> Inference::loss(int32_t) { BRAID_CHECK(false, "inference has no loss"); }

void Inference::drop() {
  packed_.clear();
  begun_.drop();
  parts_.clear();
  rows_.clear();
  passed_.clear();
}

void Inference::abandon() {
  drop();
  if (work_.model != nullptr) work_.model->rest();
  work_ = {};
}

Result<bool> Inference::reserve(const InferWork& work) {
  return finds_memory(*work.needs, *work.partition, work.ops, 0, work.model->options().device,
                      work.agrees);
}

// The copies that are kept of a beginning may find no memory, as a pass may.
void Inference::note_passed(int32_t micro_batch, ModelPass& pass) {
  if (++passed_[micro_batch] < work_.model->ranges().size()) return;
  try {
    begun_.end_batch(micro_batch);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    pass.give_up(*this, what_ran_out(error));
  }
}

Status Inference::execute(const Op& op, ModelPass& pass, InferredRows* out) {
  if (op.kind != OpKind::kAgree) {
    BRAID_TRY(
        pass.run(op, work_.ops.bodies[op.body], *this).at(cat("micro-batch ", op.micro_batch)));
    if (op.kind == OpKind::kForward && !pass.gave_up()) note_passed(op.micro_batch, pass);
    return ok_status();
  }
  BRAID_ASSIGN(out->ran_out,
               on_any_rank(!pass.ran_out().empty(), work_.agrees, "memory of the call"));
  return ok_status();
}

Result<InferredRows> Inference::run(InferWork work, const SampleStore& store) {
  abandon();  // what a failed call left
  work_ = std::move(work);
  store_ = &store;
  begun_.begin({work_.frame.call, work_.part, work_.prefixes, store_,
                store.responses_of(*work_.call), work_.model});
  const auto& shares = work_.partition->minibatches[0].micro_batches;
  work_.model->keep_packed(work_.keeps_packed && shares[work_.ops.at.dp_rank].size() > 1);
  TransferCheck check(work_.frame, *work_.model, work_.sums_gradients);
  ModelPass pass(*work_.model, work_.everyone, work_.weights);
  if (free_tensor_bytes(work_.model->options().device))
    pass.measure(*work_.needs, [&](int32_t micro_batch) {
      return micro_batch_tokens(*work_.partition, work_.ops, 0, micro_batch);
    });
  InferredRows out;
  {
    const TransferCheck::Counting counting(check);
    for (const Op& op : work_.ops.ops) {
      const WorkSection section;
      count_instruction();
      BRAID_TRY(execute(op, pass, &out));
      check.expect(work_.ops, op, pass.rows(op));
    }
    BRAID_TRY(pass.finish());
  }
  out.why = pass.ran_out();
  if (out.why.empty()) check.settle("an infer call");
  if (out.ran_out || !out.why.empty()) {
    out.ran_out = true;
    begun_.give_up();
    abandon();
    return out;
  }
  if (work_.ops.bodies.back().head) out.values = parts_.empty() ? at::empty({0}) : at::cat(parts_);
  out.rows = std::move(rows_);
  begun_.end();
  abandon();
  return out;
}

}  // namespace braid::inline passes

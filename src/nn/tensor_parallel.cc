#include "nn/tensor_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/status.h"
#include "comm/communicator.h"
#include "nn/shard.h"

namespace braid::inline nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor with_zero_rows(const at::Tensor& x, int64_t rows) {
  if (x.size(0) == rows) return x.contiguous();
  return at::constant_pad_nd(x, {0, 0, 0, rows - x.size(0)}, 0);
}

// This rank's run of rows of the sum of the ranks' terms [tp * run, H].
at::Tensor scatter_sum(const at::Tensor& terms, const TensorParallelGroup& group,
                       std::string_view tensor) {
  const int64_t tp = group.tp_size, run = terms.size(0) / tp;
  if (group.native) {
    const at::Tensor out = at::empty({run, terms.size(1)}, terms.options());
    wait_or_throw(group.communicator->reduce_scatter(out, terms, tensor));
    return out;
  }
  const at::Tensor received = at::empty_like(terms);
  const std::vector<int64_t> rows(tp, run);
  wait_or_throw(group.communicator->all_to_all(received, terms, rows, rows, tensor));
  const at::Tensor parts = received.view({tp, run, terms.size(1)});
  const bool narrow = terms.scalar_type() == at::kBFloat16 || terms.scalar_type() == at::kHalf;
  at::Tensor sum = parts[0].to(narrow ? at::kFloat : terms.scalar_type(), false, true);
  for (int64_t rank = 1; rank < tp; ++rank) sum.add_(parts[rank]);
  return sum.to(terms.scalar_type());
}

// The runs of all ranks [tp * run, H].
at::Tensor gather_runs(const at::Tensor& run_in, const TensorParallelGroup& group,
                       std::string_view tensor) {
  const at::Tensor run = run_in.contiguous();
  const at::Tensor out = at::empty({run.size(0) * group.tp_size, run.size(1)}, run.options());
  wait_or_throw(group.communicator->all_gather(out, run, tensor));
  return out;
}

// The group is not owned by the graph: it belongs to the model, which outlives every backward.
c10::IValue group_value(const TensorParallelGroup& group) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&group));
}
const TensorParallelGroup& group_of(AutogradContext* context) {
  return *reinterpret_cast<const TensorParallelGroup*>(context->saved_data["group"].toInt());
}

at::Tensor forward_enter(const at::Tensor& x, int64_t rows, const TensorParallelGroup& group) {
  if (!group.cuts_rows()) return x;
  return gather_runs(x, group, "hidden states").narrow(0, 0, rows);
}

at::Tensor forward_leave(const at::Tensor& term, const TensorParallelGroup& group) {
  if (!group.cuts_rows()) return sum_over_ranks(term, group, "hidden states");
  return scatter_sum(with_zero_rows(term, kept_rows(term.size(0), group) * group.tp_size), group,
                     "hidden states");
}

struct EnterFunction : torch::autograd::Function<EnterFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t rows,
                            const TensorParallelGroup& group) {
    context->saved_data["group"] = group_value(group);
    return forward_enter(x, rows, group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {forward_leave(grads[0].contiguous(), group_of(context)), at::Tensor(), at::Tensor()};
  }
};

struct LeaveFunction : torch::autograd::Function<LeaveFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& term,
                            const TensorParallelGroup& group) {
    context->saved_data["group"] = group_value(group);
    context->saved_data["rows"] = term.size(0);
    return forward_leave(term.contiguous(), group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const int64_t rows = context->saved_data["rows"].toInt();
    return {forward_enter(grads[0].contiguous(), rows, group_of(context)), at::Tensor()};
  }
};

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t rows,
                            const TensorParallelGroup& group) {
    context->saved_data["group"] = group_value(group);
    return forward_enter(x, rows, group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {keep_rows(grads[0], group_of(context)), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

int64_t kept_rows(int64_t rows, const TensorParallelGroup& group) {
  return group.cuts_rows() ? (rows + group.tp_size - 1) / group.tp_size : rows;
}

at::Tensor keep_rows(const at::Tensor& x, const TensorParallelGroup& group) {
  if (!group.cuts_rows()) return x;
  const int64_t run = kept_rows(x.size(0), group);
  return with_zero_rows(x, run * group.tp_size).narrow(0, group.tp_rank * run, run).contiguous();
}

at::Tensor enter_shared(const at::Tensor& x_KH, int64_t rows, const TensorParallelGroup& group) {
  if (group.tp_size == 1) return x_KH;
  if (!at::GradMode::is_enabled()) return forward_enter(x_KH, rows, group);
  return EnterFunction::apply(x_KH, rows, group);
}

at::Tensor leave_shared(const at::Tensor& term_TH, const TensorParallelGroup& group) {
  if (group.tp_size == 1) return term_TH;
  if (!at::GradMode::is_enabled()) return forward_leave(term_TH.contiguous(), group);
  return LeaveFunction::apply(term_TH, group);
}

at::Tensor gather_rows(const at::Tensor& x_KH, int64_t rows, const TensorParallelGroup& group) {
  if (!group.cuts_rows()) return x_KH;
  if (!at::GradMode::is_enabled()) return forward_enter(x_KH, rows, group);
  return GatherFunction::apply(x_KH, rows, group);
}

at::Tensor embed_shared(const at::Tensor& w_UH, int64_t begin, const at::Tensor& tokens_T,
                        const TensorParallelGroup& group) {
  const at::Tensor local = tokens_T - begin;
  const at::Tensor here = local.ge(0).logical_and(local.lt(w_UH.size(0)));
  const at::Tensor rows = at::embedding(w_UH, local * here);
  return leave_shared(rows * here.unsqueeze(1).to(rows.scalar_type()), group);
}

at::Tensor sum_over_ranks(const at::Tensor& term, const TensorParallelGroup& group,
                          std::string_view tensor) {
  if (group.native || group.tp_size == 2) {  // two terms have one order
    const at::Tensor sum = term.clone(at::MemoryFormat::Contiguous);
    wait_or_throw(group.communicator->all_reduce(sum, Reduce::kSum, tensor));
    return sum;
  }
  const at::Tensor flat = term.contiguous().view({-1, 1});
  const int64_t run = (flat.size(0) + group.tp_size - 1) / group.tp_size;
  const at::Tensor own = scatter_sum(with_zero_rows(flat, run * group.tp_size), group, tensor);
  return gather_runs(own, group, tensor).narrow(0, 0, flat.size(0)).view(term.sizes());
}

at::Tensor gather_columns(const at::Tensor& part_NU, int64_t columns,
                          const TensorParallelGroup& group) {
  if (group.tp_size == 1) return part_NU;
  const int64_t widest = (columns + group.tp_size - 1) / group.tp_size;
  const at::Tensor mine =
      at::constant_pad_nd(part_NU, {0, widest - part_NU.size(1)}, 0).contiguous();
  const at::Tensor all = at::empty({group.tp_size, mine.size(0), widest}, mine.options());
  const at::Tensor whole = at::empty({mine.size(0), columns}, mine.options());
  wait_or_throw(group.communicator->all_gather(all, mine, "logits"));
  for (int rank = 0; rank < group.tp_size; ++rank) {
    const IndexRange part = units_of_rank(columns, {rank, group.tp_size});
    whole.narrow(1, part.begin, part.size()).copy_(all[rank].narrow(1, 0, part.size()));
  }
  return whole;
}

}  // namespace braid::inline nn

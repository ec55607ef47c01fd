// The language-model head in chunks of rows: log-probs and entropies leave, logits never do. The
// backward computes each chunk's logits again and turns them in place into their gradient: d logits
// = (onehot(target) - p) g / temperature for the log-prob, and -p (log p + entropy) g / temperature
// for the entropy.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "nn/kernels/any_order.h"
#include "nn/kernels/head_rows.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/rows.h"
#include "nn/kernels/simd.h"

namespace braid::inline nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is kept of each row of logits: log-prob of its target, entropy, and log of the sum of
// exponentials, all of logits / temperature.
struct RowStatistics {
  float logprob, entropy, log_sum;
};

// z = logit / temperature. Sums by lanes of 16, blocks of kBlock in f64.
constexpr int64_t kLanes = 16, kBlock = 1024;

BRAID_SIMD float largest(const float* logits, int64_t vocab) {
  float top = logits[0];
  for (int64_t i = 0; i < vocab; ++i) top = logits[i] > top ? logits[i] : top;
  return top;
}

// Sums of exp(z - top) and of (z - top) exp(z - top) over at most kBlock logits.
struct BlockSums {
  float weights, products;
};
BRAID_SIMD BlockSums sum_block(const float* logits, int64_t count, float top, float inverse) {
  float weights[kLanes] = {}, products[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float z = (logits[i + lane] - top) * inverse, weight = fast_exp(z);
      weights[lane] += weight;
      products[lane] += weight > 0 ? z * weight : 0.0F;  // z may be minus infinity
    }
  BlockSums sums{0, 0};
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums.weights += weights[lane];
    sums.products += products[lane];
  }
  for (; i < count; ++i) {
    const float z = (logits[i] - top) * inverse, weight = fast_exp(z);
    sums.weights += weight;
    sums.products += weight > 0 ? z * weight : 0.0F;
  }
  return sums;
}

// A row of head_partials().
struct RowPartials {
  double top, weights, products, target;
};

RowPartials row_partials(const float* logits, int64_t vocab, int64_t target, float inverse) {
  const float top = largest(logits, vocab);
  double weights = 0, products = 0;
  for (int64_t begin = 0; begin < vocab; begin += kBlock) {
    const BlockSums sums = sum_block(logits + begin, std::min(kBlock, vocab - begin), top, inverse);
    weights += sums.weights;
    products += sums.products;
  }
  const bool here = target >= 0 && target < vocab;
  return {top, weights, products, here ? logits[target] : 0.0};
}

RowStatistics row_statistics(const float* logits, int64_t vocab, int64_t target, float inverse) {
  const RowPartials row = row_partials(logits, vocab, target, inverse);
  const double log_weights = std::log(row.weights);
  const double target_z = (row.target - row.top) * inverse;
  return {static_cast<float>(target_z - log_weights),
          static_cast<float>(log_weights - row.products / row.weights),
          static_cast<float>(row.top * inverse + log_weights)};
}

// logits become -(g + ge (log p + entropy)) p / temperature.
struct RowGradient {
  float logprob, entropy;  // of the loss
};
BRAID_SIMD void gradient_row(float* logits, int64_t vocab, const RowStatistics& row,
                             const RowGradient& g, float inverse) {
  for (int64_t i = 0; i < vocab; ++i) {
    const float logp = logits[i] * inverse - row.log_sum, p = fast_exp(logp);
    const float slope = p > 0 ? g.logprob + g.entropy * (logp + row.entropy) : 0.0F;
    logits[i] = -slope * p * inverse;
  }
}

BRAID_SIMD void cap_row(float* x, int64_t count, float cap) {
  const float inverse = 1.0F / cap;
  for (int64_t i = 0; i < count; ++i) x[i] = cap * fast_tanh(x[i] * inverse);
}

at::Tensor chunk_logits(const at::Tensor& h, const at::Tensor& w, const PackedLinear& packed,
                        double soft_cap) {
  at::Tensor logits = braid::linear(h, w, {}, &packed).to(at::kFloat);
  soft_cap_in_place(logits, soft_cap);
  return logits;
}

// Of the cap at what it gave; undefined without.
at::Tensor cap_slopes(const at::Tensor& capped, double cap) {
  if (cap == 0) return {};
  const at::Tensor ratio = capped / cap;
  return 1 - ratio * ratio;
}

// statistics_N3 rows for a chunk of logits, which are left as they are.
void chunk_statistics(const at::Tensor& logits, const at::Tensor& targets, float inverse,
                      const at::Tensor& statistics) {
  const int64_t vocab = logits.size(1);
  if (!logits.is_cpu()) {
    const at::Tensor z = inverse == 1 ? logits : logits * inverse;
    const at::Tensor logp = at::_log_softmax(z, 1, false), index = targets.unsqueeze(1);
    statistics.select(1, 0).copy_(at::gather(logp, 1, index).squeeze(1));
    statistics.select(1, 1).copy_(logp.exp().mul_(logp).sum(1).neg());
    statistics.select(1, 2).copy_(
        (at::gather(z, 1, index) - at::gather(logp, 1, index)).squeeze(1));
    return;
  }
  const float* data = logits.const_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  auto* out = reinterpret_cast<RowStatistics*>(statistics.mutable_data_ptr<float>());
  at::parallel_for(0, logits.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      out[r] = row_statistics(data + r * vocab, vocab, target[r], inverse);
  });
}

// Rows of head_partials() for a chunk of logits.
void chunk_partials(const at::Tensor& logits, const at::Tensor& targets, float inverse,
                    const at::Tensor& partials) {
  const int64_t vocab = logits.size(1);
  if (!logits.is_cpu()) {
    const at::Tensor top = std::get<0>(logits.max(1, true)), z = (logits - top) * inverse;
    const at::Tensor weights = z.exp(), index = targets.clamp(0, vocab - 1).unsqueeze(1);
    const at::Tensor here = targets.ge(0).logical_and(targets.lt(vocab));
    partials.select(1, 0).copy_(top.squeeze(1));
    partials.select(1, 1).copy_(weights.sum(1, false, at::kDouble));
    partials.select(1, 2).copy_((weights * z).sum(1, false, at::kDouble));
    partials.select(1, 3).copy_(at::gather(logits, 1, index).squeeze(1) * here);
    return;
  }
  const float* data = logits.const_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  auto* out = reinterpret_cast<RowPartials*>(partials.mutable_data_ptr<double>());
  at::parallel_for(0, logits.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      out[r] = row_partials(data + r * vocab, vocab, target[r], inverse);
  });
}

// What chunk_gradient() does, by operators. Memory for a second matrix of logits is taken only
// where the entropy is part of the loss.
void gradient_by_operators(const at::Tensor& logits, const at::Tensor& targets, float inverse,
                           const HeadBackwardInputs& in) {
  const int64_t vocab = logits.size(1);
  const at::Tensor by_logprob = in.gradients_N2.narrow(1, 0, 1);
  if (inverse != 1) logits.mul_(inverse);
  logits.sub_(in.statistics_N3.narrow(1, 2, 1));  // log-probs
  at::Tensor slope = by_logprob * -inverse;
  if (in.through_entropy)
    slope = (logits + in.statistics_N3.narrow(1, 1, 1))
                .mul_(in.gradients_N2.narrow(1, 1, 1) * -inverse)
                .add_(slope);
  logits.exp_().mul_(slope);
  const at::Tensor here = targets.ge(0).logical_and(targets.lt(vocab)).unsqueeze(1);
  const AnyOrder any_order;
  logits.scatter_add_(1, targets.clamp(0, vocab - 1).unsqueeze(1), by_logprob * inverse * here);
}

// A chunk of logits becomes the gradient of the loss by them; `in` is of the rows of the chunk.
void chunk_gradient(const at::Tensor& logits, float inverse, const HeadBackwardInputs& in) {
  const at::Tensor &targets = in.targets_N, &statistics = in.statistics_N3,
                   &gradients = in.gradients_N2;
  if (!logits.is_cpu()) return gradient_by_operators(logits, targets, inverse, in);
  const int64_t vocab = logits.size(1);
  float* data = logits.mutable_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const auto* rows = reinterpret_cast<const RowStatistics*>(statistics.const_data_ptr<float>());
  const auto* g = reinterpret_cast<const RowGradient*>(gradients.const_data_ptr<float>());
  at::parallel_for(0, logits.size(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      gradient_row(data + r * vocab, vocab, rows[r], g[r], inverse);
      const bool here = target[r] >= 0 && target[r] < vocab;
      if (here) data[r * vocab + target[r]] += g[r].logprob * inverse;
    }
  });
}

at::Tensor all_statistics(const at::Tensor& h, const at::Tensor& w, const at::Tensor& targets,
                          const HeadOptions& options) {
  const int64_t chunk_rows = options.chunk_rows;
  BRAID_CHECK(chunk_rows > 0, "the head works on chunks of at least one row");
  const int64_t rows = h.size(0);
  const at::Tensor statistics = at::empty({rows, 3}, h.options().dtype(at::kFloat));
  const PackedLinear packed = pack_linear(w, false);
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin);
    chunk_statistics(chunk_logits(h.narrow(0, begin, count), w, packed, options.soft_cap),
                     targets.narrow(0, begin, count), static_cast<float>(1 / options.temperature),
                     statistics.narrow(0, begin, count));
  }
  return statistics;
}

struct HeadFunction : torch::autograd::Function<HeadFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& h, const at::Tensor& w,
                               const at::Tensor& targets, const HeadOptions& options) {
    const at::Tensor statistics = all_statistics(h, w, targets, options);
    context->save_for_backward({h, w, targets, statistics});
    context->set_materialize_grads(false);  // a loss without entropy is known by its gradient
    save_head_options(options, context);
    return {statistics.select(1, 0).clone(), statistics.select(1, 1).clone()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradients = at::zeros({saved[0].size(0), 2}, saved[3].options());
    for (const int column : {0, 1})
      if (grads[column].defined()) gradients.select(1, column).copy_(grads[column]);
    const HeadGradients out = head_backward({saved[0], saved[1], saved[2], saved[3], gradients,
                                             saved_head_options(*context), grads[1].defined()});
    return {out.h_NH, out.w_UH.to(saved[1].scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void soft_cap_in_place(const at::Tensor& x, double cap) {
  if (cap == 0) return;
  BRAID_CHECK(!x.requires_grad() && x.scalar_type() == at::kFloat && x.is_contiguous(),
              "logits are capped in f32, beside autograd");
  if (!x.is_cpu()) {
    x.div_(cap).tanh_().mul_(cap);
    return;
  }
  float* data = x.mutable_data_ptr<float>();
  const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
    cap_row(data + begin * width, (end - begin) * width, static_cast<float>(cap));
  });
}

void save_head_options(const HeadOptions& options, AutogradContext* context) {
  context->saved_data["temperature"] = options.temperature;
  context->saved_data["chunk_rows"] = options.chunk_rows;
  context->saved_data["soft_cap"] = options.soft_cap;
}

HeadOptions saved_head_options(const AutogradContext& context) {
  return {context.saved_data.at("temperature").toDouble(),
          context.saved_data.at("chunk_rows").toInt(),
          context.saved_data.at("soft_cap").toDouble()};
}

HeadGradients head_backward(const HeadBackwardInputs& in) {
  const at::Tensor &h = in.h_NH, &w = in.w_UH;
  const auto inverse = static_cast<float>(1 / in.options.temperature);
  const int64_t rows = h.size(0), chunk_rows = in.options.chunk_rows;
  at::Tensor dh = at::empty_like(h);
  at::Tensor dw = at::zeros({w.size(0), w.size(1)}, w.options().dtype(at::kFloat));
  const PackedLinear packed = pack_linear(w, false);
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin);
    const auto rows_of = [&](const at::Tensor& all) { return all.narrow(0, begin, count); };
    const at::Tensor h_chunk = rows_of(h);
    const at::Tensor logits = chunk_logits(h_chunk, w, packed, in.options.soft_cap);
    const at::Tensor slopes = cap_slopes(logits, in.options.soft_cap);
    chunk_gradient(logits, inverse,
                   {h_chunk, w, rows_of(in.targets_N), rows_of(in.statistics_N3),
                    rows_of(in.gradients_N2), in.options, in.through_entropy});
    if (slopes.defined()) logits.mul_(slopes);
    const at::Tensor dlogits = logits.to(h.scalar_type());
    dh.narrow(0, begin, count).copy_(at::mm(dlogits, w));
    if (dlogits.scalar_type() == at::kFloat) {
      dw.addmm_(dlogits.t(), h_chunk);
    } else {
      dw.add_(at::mm(dlogits.t(), h_chunk));
    }
  }
  return {dh, dw};
}

at::Tensor head_partials(const at::Tensor& h_NH, const at::Tensor& w_UH,
                         const at::Tensor& targets_N, const HeadOptions& options) {
  const int64_t rows = h_NH.size(0), chunk_rows = options.chunk_rows;
  const at::Tensor partials = at::empty({rows, 4}, h_NH.options().dtype(at::kDouble));
  const PackedLinear packed = pack_linear(w_UH, false);
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const int64_t count = std::min(chunk_rows, rows - begin);
    chunk_partials(chunk_logits(h_NH.narrow(0, begin, count), w_UH, packed, options.soft_cap),
                   targets_N.narrow(0, begin, count), static_cast<float>(1 / options.temperature),
                   partials.narrow(0, begin, count));
  }
  return partials;
}

HeadOutput head_logprobs(const at::Tensor& h_NH, const at::Tensor& w_VH,
                         const at::Tensor& targets_N, const HeadOptions& options) {
  if (!at::GradMode::is_enabled()) {
    const at::Tensor rows = all_statistics(h_NH, w_VH, targets_N, options);
    return {rows.select(1, 0).contiguous(), rows.select(1, 1).contiguous()};
  }
  const variable_list out = HeadFunction::apply(h_NH, w_VH, targets_N, options);
  return {out[0], out[1]};
}

}  // namespace braid::inline nn

// The language-model head over a vocabulary whose rows are partitioned over the ranks of a group.
// Not for callers outside nn: head_logprobs(model, ...) chooses it.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/kernels/kernels.h"
#include "nn/tensor_parallel.h"

namespace braid::inline nn {

struct SharedHeadOptions {
  HeadOptions head;
  const TensorParallelGroup* group = nullptr;  // must outlive the backward
};

// Equal on all ranks. local_targets_N: targets less the first row that is here. The gradient of
// h_NH is complete on every rank. Two collectives forward, one backward.
HeadOutput shared_head_logprobs(const at::Tensor& h_NH, const at::Tensor& w_UH,
                                const at::Tensor& local_targets_N,
                                const SharedHeadOptions& options);

}  // namespace braid::inline nn

// The ranks that share each weight matrix, and the differentiable collectives at the borders of the
// shared region (Shoeybi et al., 2019, §3; with sequence parallelism Korthikanti et al., 2022,
// §4.2). Sums add the ranks' terms in the order of the ranks, so that a row's bits do not depend on
// the rows around it; native ones are the backend's own, which adds in the order that it likes.
// Failures of communication leave as CommunicationFailure. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace braid::inline comm {
class Communicator;
}

namespace braid::inline nn {

struct TensorParallelGroup {
  int64_t tp_rank = 0;
  int64_t tp_size = 1;
  Communicator* communicator = nullptr;  // of these ranks, in their order; null for one rank
  Communicator* shared = nullptr;  // of those that hold the same key-value heads; null: none do
  // Outside the shared region each rank keeps only its rows of the hidden states: rows are padded
  // to a multiple of tp_size and partitioned in runs.
  bool sequence_parallel = false;
  bool native = false;  // sums are the backend's all-reduce and reduce-scatter

  bool cuts_rows() const { return sequence_parallel && tp_size > 1; }
};

// The ranks in a pass over caches: each has all rows of the hidden states throughout, since a round
// of generation has few, and two messages for one sum would take longer.
inline TensorParallelGroup over_caches(TensorParallelGroup group) {
  group.sequence_parallel = false;
  return group;
}

// Rows of hidden states that each rank keeps of `rows`: all, or its run of the padded rows.
int64_t kept_rows(int64_t rows, const TensorParallelGroup& group);

// What this rank keeps of x [rows, ...] (zeros in the place of rows beyond the end).
at::Tensor keep_rows(const at::Tensor& x, const TensorParallelGroup& group);

// Into the region: all `rows` rows of the hidden states. Backward: sums the ranks' gradients.
at::Tensor enter_shared(const at::Tensor& x_KH, int64_t rows, const TensorParallelGroup& group);

// Out of the region: the sum of the ranks' terms, of which each rank keeps kept_rows(). Backward:
// the gradient of all rows on every rank.
at::Tensor leave_shared(const at::Tensor& term_TH, const TensorParallelGroup& group);

// All rows of hidden states on every rank, for work that every rank does alike. REQUIRES: the
// gradient is equal on all ranks. Backward: the gradient of this rank's rows.
at::Tensor gather_rows(const at::Tensor& x_KH, int64_t rows, const TensorParallelGroup& group);

// Rows [begin, begin + w.size(0)) of a vocabulary's embedding: hidden states as leave_shared()
// gives them. Differentiable in w_UH.
at::Tensor embed_shared(const at::Tensor& w_UH, int64_t begin, const at::Tensor& tokens_T,
                        const TensorParallelGroup& group);

// The sum of the ranks' terms on every rank; not differentiable.
at::Tensor sum_over_ranks(const at::Tensor& term, const TensorParallelGroup& group,
                          std::string_view tensor);

// Columns of every rank one after another, as many as units_of_rank() gives each of `columns`.
at::Tensor gather_columns(const at::Tensor& part_NU, int64_t columns,
                          const TensorParallelGroup& group);

}  // namespace braid::inline nn

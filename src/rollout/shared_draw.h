// Drawing tokens from logits whose vocabulary lies on several ranks: each has its part of every
// row. They tell each other the largest logit, sums and candidates (batching/sampling_messages.h),
// and all of them find the same tokens, which are those that sample_token() draws from whole rows.
//
// Sums of weights are added in another order here. A row is drawn from what was told where no
// order of additions changes its token; of the others, a few in a million, the ranks gather the
// logits. Its log-prob is that of the whole row but for the last bit of a sum in f64, which f32
// hides nearly always. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "batching/sampling_messages.h"
#include "nn/tensor_parallel.h"
#include "rollout/sampler.h"
#include "rollout/token_weights.h"

namespace braid::inline rollout {

struct DrawRow {
  const SamplingOptions* options = nullptr;
  SamplingContext context;
};

// What drawing these rows needs.
SamplingNeeds sampling_needs(const std::vector<DrawRow>& rows);

// Whole rows of logits [rows, vocab] from the parts of all ranks; none where a rank lacks memory,
// which then gives any. Changes the part of such a rank.
std::optional<at::Tensor> gather_logits(const at::Tensor& own, int64_t vocab,
                                        const TensorParallelGroup& group, bool lacks);

class SharedDraw {
 public:
  // Of rows of a vocabulary that the group shares. REQUIRES: what they refer to, and the group,
  // outlive this; every rank has the same rows.
  SharedDraw(std::vector<DrawRow> rows, int64_t vocab, const TensorParallelGroup& group);

  // Draws from this rank's logits [rows, its tokens] (f32, on the host). Where memory runs out in
  // it, nothing that it has begun with other ranks is lost: run() again goes on, with any logits
  // and `lacks`, so that the others can end theirs and know. Errors, of each row: also that the
  // others have ended before they could be told.
  std::vector<Result<SampledToken>> run(const at::Tensor& logits, bool lacks = false);
  // Whether a rank lacked memory: on all of them, and nothing is drawn.
  bool ran_out() const { return ran_out_; }
  // Rows whose logits were gathered.
  int64_t gathered_rows() const { return gathered_; }

 private:
  void step(int64_t number, const at::Tensor& logits);
  void each_row(void (SharedDraw::*act)(int64_t row));
  void allocate();
  void measure(int64_t row, const float* logits);
  void weigh_row(int64_t row);
  void sum_row(int64_t row);
  void choose(int64_t row);
  void scan(int64_t row);
  bool takes_found(int64_t row);
  bool takes_candidate(int64_t row);
  std::vector<WeighedToken> candidates(int64_t row, int64_t* positive) const;
  void conclude(int64_t row);
  void gather(const at::Tensor& logits);
  void tell_shortage(const at::Tensor& numbers, double what);
  bool told_shortage() const;

  const SamplingOptions& options(int64_t row) const { return *rows_[row].options; }
  bool draws_from_candidates(int64_t row) const;
  bool fails(int64_t row) const;
  double unit(int64_t row) const;
  float* weights(int64_t row) const;
  double told(int64_t rank, int64_t row, int64_t number) const;
  double sum_of(int64_t row) const;
  double doubt(int64_t row) const;

  const std::vector<DrawRow> rows_;
  const int64_t vocab_;
  const TensorParallelGroup& group_;
  const SamplingNeeds needs_;
  int64_t begin_ = 0, end_ = 0;  // this rank's tokens
  int64_t gathered_ = 0;
  int64_t steps_ = 0;  // that are done
  at::Tensor weights_, tops_, lanes_, all_lanes_, sums_, all_sums_, found_, all_found_;
  std::vector<Result<SampledToken>> drawn_;
  std::vector<int64_t> unsure_;  // rows
  bool lacks_ = false;           // memory, on this rank
  bool told_ = false;            // the others know that
  bool ran_out_ = false;
};

}  // namespace braid::inline rollout

#include "rollout/device_draw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ceil_div.h"
#include "base/rng.h"
#include "device/device_copy.h"
#include "rollout/token_weights.h"

namespace braid::inline rollout {
namespace {

constexpr int64_t kDrawBlock = 1024;  // tokens whose probabilities are summed there

bool is_greedy(const DrawRow& row) { return row.options->temperature == 0; }

// [R, blocks, kDrawBlock]: probabilities at each row's temperature, zeros behind the vocabulary.
at::Tensor probabilities(const std::vector<DrawRow>& rows, const at::Tensor& logits) {
  std::vector<float> inverse;
  for (const DrawRow& row : rows)
    inverse.push_back(is_greedy(row) ? 1.0F : static_cast<float>(1 / row.options->temperature));
  const bool all_one = std::all_of(inverse.begin(), inverse.end(), [](float x) { return x == 1; });
  const at::Tensor z =
      all_one ? logits : logits * to_device(at::tensor(inverse).unsqueeze(1), logits.device());
  const int64_t blocks = ceil_div(logits.size(1), kDrawBlock);
  return at::constant_pad_nd(at::softmax(z, 1), {0, blocks * kDrawBlock - logits.size(1)})
      .view({logits.size(0), blocks, kDrawBlock});
}

// What the host knows of a row: of the sums of its blocks their sum, and which block the token is
// in, behind `below`.
struct RowSums {
  double sum = 0, target = 0;
  int64_t best = 0;  // token
  WeightPlace block;

  bool is_sound() const { return sum > 0 && block.index >= 0; }
};

// `told`: the sums of the blocks, then the best token.
RowSums read_sums(const DrawRow& row, const double* told, int64_t blocks) {
  RowSums out;
  out.sum = std::accumulate(told, told + blocks, 0.0);
  out.best = static_cast<int64_t>(told[blocks]);
  const SamplingContext& context = row.context;
  out.target =
      random_unit(row.options->seed, context.sample, context.response_ids->size()) * out.sum;
  out.block = is_greedy(row) ? WeightPlace{out.best / kDrawBlock, 0}
                             : place_at(told, blocks, 0, out.target);
  return out;
}

// `block`: the probabilities of the row's block.
Result<SampledToken> take_token(const DrawRow& row, const RowSums& of, const float* block) {
  if (!of.is_sound()) return no_distribution(static_cast<float>(of.sum));
  const int64_t index = is_greedy(row)
                            ? of.best % kDrawBlock
                            : place_at(block, kDrawBlock, of.block.below, of.target).index;
  const double logprob = std::log(static_cast<double>(block[index])) - std::log(of.sum);
  return SampledToken{static_cast<int32_t>(of.block.index * kDrawBlock + index),
                      static_cast<float>(logprob)};
}

}  // namespace

bool draws_on_device(const std::vector<DrawRow>& rows) {
  return std::all_of(rows.begin(), rows.end(), [](const DrawRow& row) {
    const SamplingOptions& with = *row.options;
    const bool masks = std::ssize(*row.context.response_ids) < with.min_new_tokens;
    return with.top_k == 0 && with.top_p == 1 && with.min_p == 0 && with.repetition_penalty == 1 &&
           !masks;
  });
}

std::vector<Result<SampledToken>> draw_on_device(const std::vector<DrawRow>& rows,
                                                 const at::Tensor& logits_RV) {
  const at::Tensor all = probabilities(rows, logits_RV);
  const at::Tensor best = at::argmax(logits_RV, 1, true).to(at::kDouble);
  const at::Tensor told = to_host(at::cat({all.sum(2, false, at::kDouble), best}, 1));
  const int64_t blocks = all.size(1);
  std::vector<RowSums> sums;
  std::vector<int64_t> chosen;
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    sums.push_back(read_sums(rows[r], told.const_data_ptr<double>() + r * (blocks + 1), blocks));
    chosen.push_back(r * blocks + std::max<int64_t>(sums.back().block.index, 0));
  }
  const at::Tensor index = to_device(at::tensor(chosen, at::kLong), all.device());
  const at::Tensor found = to_host(all.flatten(0, 1).index_select(0, index)).contiguous();
  std::vector<Result<SampledToken>> out;
  for (int64_t r = 0; r < std::ssize(rows); ++r)
    out.push_back(take_token(rows[r], sums[r], found.const_data_ptr<float>() + r * kDrawBlock));
  return out;
}

}  // namespace braid::inline rollout

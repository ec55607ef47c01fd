#include "nn/adapter_dropout.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/name_seed.h"
#include "device/device_copy.h"

namespace braid::inline nn {
namespace {

constexpr int64_t kRowsPerThread = 16;
constexpr int kBitsPerNumber = 16;  // of a random word: four columns share one
constexpr int64_t kNumbersPerWord = 64 / kBitsPerNumber;
constexpr uint64_t kNumberMask = (uint64_t{1} << kBitsPerNumber) - 1;

}  // namespace

AdapterDropout adapter_dropout(const TokenBatch& batch, double share, uint64_t seed) {
  BRAID_CHECK(static_cast<int64_t>(batch.row_keys_T.size()) == batch.tokens_T.numel(),
              "a batch without a cache has a key for each row");
  AdapterDropout out;
  out.share = share;
  for (const uint64_t key : batch.row_keys_T) out.token_keys.push_back(mix_seed(seed, key));
  return out;
}

at::Tensor drop_numbers(const AdapterDropout& dropout, const std::string& module,
                        int64_t first_column, const at::Tensor& x_TI) {
  const int64_t columns = x_TI.size(1);
  const uint64_t layer = name_seed(0, module);
  const auto limit = static_cast<uint64_t>(std::llround(std::ldexp(dropout.share, kBitsPerNumber)));
  const auto kept = static_cast<float>(1 / (1 - dropout.share));
  at::Tensor factor_TI = at::empty({x_TI.size(0), columns}, at::kFloat);
  float* factor = factor_TI.mutable_data_ptr<float>();
  at::parallel_for(0, x_TI.size(0), kRowsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const uint64_t row = mix_seed(dropout.token_keys[static_cast<size_t>(t)], layer);
      uint64_t word = 0;
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t column = first_column + j, place = column % kNumbersPerWord;
        if (j == 0 || place == 0) word = mix_seed(row, static_cast<uint64_t>(column - place));
        const uint64_t number = (word >> (kBitsPerNumber * place)) & kNumberMask;
        factor[t * columns + j] = number < limit ? 0 : kept;
      }
    }
  });
  return x_TI * to_device(factor_TI, x_TI.device()).to(x_TI.scalar_type());
}

}  // namespace braid::inline nn

// What is packed of samples whose prompts are equal.
#include "runtime/response_rows.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

// Two prompts, the first of three samples; one response is empty.
const std::vector<std::vector<int32_t>> kPrompts = {{1, 2, 3}, {1, 2, 3}, {4, 5}, {1, 2, 3}};
const std::vector<std::vector<int32_t>> kResponses = {{6, 7}, {}, {8}, {9, 10}};
const std::vector<size_t> kRows = {0, 1, 2, 3};
using Numbers = std::vector<int64_t>;

TEST(ResponseRows, WholeSamplesHaveAllTheirRows) {
  const ResponseRows packed = pack_responses(kPrompts, kResponses, kRows, at::kCPU, false);
  EXPECT_EQ(numbers(packed.batch.tokens_T),
            (Numbers{1, 2, 3, 6, 7, 1, 2, 3, 4, 5, 8, 1, 2, 3, 9, 10}));
  EXPECT_EQ(numbers(packed.rows_R), (Numbers{2, 3, 9, 13, 14}));
  EXPECT_EQ(numbers(packed.last_S), (Numbers{4, 7, 10, 15}));
}

TEST(ResponseRows, AnEqualPromptIsThereOnce) {
  const ResponseRows packed = pack_responses(kPrompts, kResponses, kRows, at::kCPU, true);
  EXPECT_EQ(numbers(packed.batch.tokens_T), (Numbers{1, 2, 3, 6, 7, 4, 5, 8, 9, 10}));
  EXPECT_EQ(numbers(packed.batch.positions_T), (Numbers{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(numbers(packed.rows_R), (Numbers{2, 3, 6, 2, 8}));
  EXPECT_EQ(numbers(packed.targets_R), (Numbers{6, 7, 8, 9, 10}));
  EXPECT_EQ(numbers(packed.last_S), (Numbers{4, 2, 7, 9}));
  EXPECT_EQ(packed.batch.attention.hosts, (std::vector<int32_t>{-1, 0, -1, 0}));
}

}  // namespace
}  // namespace braid

// What is packed of samples whose prompts are equal.
#include "samples/response_rows.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <set>

namespace braid::inline samples {
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

// However samples are packed: by the prompt, then by the sample and the place.
TEST(ResponseRows, KeysTellSampleAndPlace) {
  const auto keys = [](const std::vector<size_t>& rows, const std::vector<uint64_t>& ids,
                       bool share) {
    return pack_responses(kPrompts, kResponses, rows, at::kCPU, share, ids).batch.row_keys_T;
  };
  const auto whole = keys(kRows, {20, 21, 22, 23}, false);
  const auto part = [&](size_t begin, size_t count) {
    return std::vector<uint64_t>(whole.begin() + begin, whole.begin() + begin + count);
  };
  EXPECT_EQ(part(0, 3), part(5, 3));
  EXPECT_EQ(part(0, 3), part(11, 3));
  EXPECT_EQ(keys({3}, {23}, false), part(11, 5));
  auto shared = part(0, 5);
  for (const auto& rest : {part(8, 3), part(14, 2)})
    shared.insert(shared.end(), rest.begin(), rest.end());
  EXPECT_EQ(keys(kRows, {20, 21, 22, 23}, true), shared);
  EXPECT_EQ(std::set<uint64_t>(shared.begin(), shared.end()).size(), shared.size());
  // Samples with equal tokens leave out different numbers of the response.
  const auto other = keys({0}, {24}, false);
  EXPECT_EQ(std::vector<uint64_t>(other.begin(), other.begin() + 3), part(0, 3));
  EXPECT_NE(other[3], whole[3]);
}

}  // namespace
}  // namespace braid::inline samples

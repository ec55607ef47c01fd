#include "runtime/response_rows.h"

#include <ATen/ops/tensor.h>

#include "base/status.h"

namespace braid {

ResponseRows pack_responses(const std::vector<std::vector<int32_t>>& prompts,
                            const std::vector<std::vector<int32_t>>& responses,
                            const std::vector<size_t>& rows, at::Device device) {
  std::vector<std::vector<int32_t>> sequences;
  std::vector<int64_t> predicting, targets, last;
  int64_t begin = 0;
  for (const size_t row : rows) {
    BRAID_CHECK(!prompts[row].empty(), "a prompt has at least one token");
    std::vector<int32_t> sequence = prompts[row];
    sequence.insert(sequence.end(), responses[row].begin(), responses[row].end());
    const auto prompt = static_cast<int64_t>(prompts[row].size());
    for (size_t i = 0; i < responses[row].size(); ++i) {
      predicting.push_back(begin + prompt - 1 + static_cast<int64_t>(i));
      targets.push_back(responses[row][i]);
    }
    begin += static_cast<int64_t>(sequence.size());
    last.push_back(begin - 1);
    sequences.push_back(std::move(sequence));
  }
  return {pack_sequences(sequences, device), at::tensor(predicting, at::kLong).to(device),
          at::tensor(targets, at::kLong).to(device), at::tensor(last, at::kLong).to(device)};
}

Result<TokenBatch> PackedBatches::tokens(int32_t micro_batch, const SampleStore& store,
                                         const Rows& rows, at::Device device) {
  const auto found = packed_.find(micro_batch);
  if (found != packed_.end()) return found->second.batch;
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens("response_ids"));
  ResponseRows& packed = packed_[micro_batch];
  packed = pack_responses(*prompts, *responses, rows, device);
  return packed.batch;
}

}  // namespace braid

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

}  // namespace braid

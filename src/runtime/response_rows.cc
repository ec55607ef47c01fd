#include "runtime/response_rows.h"

#include <ATen/ops/tensor.h>

#include "base/status.h"
#include "device/device_copy.h"

namespace braid {

ResponseRows pack_responses(const std::vector<std::vector<int32_t>>& prompts,
                            const std::vector<std::vector<int32_t>>& responses,
                            const std::vector<size_t>& rows, at::Device device,
                            bool share_prompts) {
  // Where the prompts begin that others may share: index and first row of their sample.
  struct Host {
    int32_t sequence;
    int64_t begin;
  };
  std::map<std::vector<int32_t>, Host> hosts;
  std::vector<std::vector<int32_t>> sequences;
  std::vector<SharedStart> starts;
  std::vector<int64_t> predicting, targets, last;
  int64_t end = 0;  // of the rows so far
  for (const size_t row : rows) {
    const std::vector<int32_t>&prompt = prompts[row], &response = responses[row];
    BRAID_CHECK(!prompt.empty(), "a prompt has at least one token");
    const auto length = static_cast<int64_t>(prompt.size());
    Host host{-1, end};
    if (share_prompts) {
      const Host own{static_cast<int32_t>(sequences.size()), end};
      const auto [known, fresh] = hosts.emplace(prompt, own);
      if (!fresh) host = known->second;
    }
    if (host.sequence < 0) end += length;
    for (size_t i = 0; i < response.size(); ++i) {
      predicting.push_back(i == 0 ? host.begin + length - 1 : end + static_cast<int64_t>(i) - 1);
      targets.push_back(response[i]);
    }
    end += static_cast<int64_t>(response.size());
    last.push_back(response.empty() ? host.begin + length - 1 : end - 1);
    starts.push_back({host.sequence, host.sequence < 0 ? 0 : static_cast<int32_t>(length)});
    sequences.push_back(prompt);
    sequences.back().insert(sequences.back().end(), response.begin(), response.end());
  }
  return {pack_sequences(sequences, device, starts),
          to_device(at::tensor(predicting, at::kLong), device),
          to_device(at::tensor(targets, at::kLong), device),
          to_device(at::tensor(last, at::kLong), device)};
}

Result<TokenBatch> PackedBatches::tokens(int32_t micro_batch, const SampleStore& store,
                                         const Rows& rows, at::Device device) {
  const auto found = packed_.find(micro_batch);
  if (found != packed_.end()) return found->second.batch;
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* responses, store.tokens("response_ids"));
  ResponseRows& packed = packed_[micro_batch];
  packed = pack_responses(*prompts, *responses, rows, device, share_prompts_);
  return packed.batch;
}

}  // namespace braid

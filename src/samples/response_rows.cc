#include "samples/response_rows.h"

#include <ATen/ops/tensor.h>

#include "base/rng.h"
#include "base/status.h"
#include "device/device_copy.h"

namespace braid::inline samples {
namespace {

// Streams of keys that must not meet.
constexpr uint64_t kPromptKeys = 1, kResponseKeys = 2;

// Samples of one prompt may share its rows, so these have the keys of the prompt.
std::vector<uint64_t> keys_of(const std::vector<int32_t>& prompt, size_t responses, uint64_t id) {
  uint64_t text = kPromptKeys;
  for (const int32_t token : prompt) text = mix_seed(text, static_cast<uint64_t>(token));
  const uint64_t sample = mix_seed(kResponseKeys, id);
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < prompt.size(); ++i) out.push_back(mix_seed(text, i));
  for (uint64_t i = 0; i < responses; ++i) out.push_back(mix_seed(sample, i));
  return out;
}

}  // namespace

ResponseRows pack_responses(const std::vector<std::vector<int32_t>>& prompts,
                            const std::vector<std::vector<int32_t>>& responses,
                            const std::vector<size_t>& rows, at::Device device, bool share_prompts,
                            const std::vector<uint64_t>& ids) {
  // Where the prompts begin that others may share: index and first row of their sample.
  struct Host {
    int32_t sequence;
    int64_t begin;
  };
  std::map<std::vector<int32_t>, Host> hosts;
  std::vector<std::vector<int32_t>> sequences;
  std::vector<SharedStart> starts;
  std::vector<std::vector<uint64_t>> keys;
  std::vector<int64_t> predicting, targets, last;
  int64_t end = 0;  // of the rows so far
  for (const size_t row : rows) {
    const std::vector<int32_t>&prompt = prompts[row], &response = responses[row];
    if (!ids.empty()) keys.push_back(keys_of(prompt, response.size(), ids[keys.size()]));
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
  return {pack_sequences(sequences, device, starts, keys),
          to_device(at::tensor(predicting, at::kLong), device),
          to_device(at::tensor(targets, at::kLong), device),
          to_device(at::tensor(last, at::kLong), device)};
}

ResponseRows pack_parts(const std::vector<std::vector<int32_t>>& prompts,
                        const std::vector<std::vector<int32_t>>& responses,
                        const std::vector<size_t>& rows, const std::vector<Interval>& parts,
                        at::Device device) {
  ResponseRows out;
  AttentionBatch& attention = out.batch.attention;
  std::vector<int64_t> tokens, positions, predicting, targets, last;
  attention.query_begin = {0};
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int32_t>&prompt = prompts[rows[i]], &response = responses[rows[i]];
    const int64_t length = std::ssize(prompt), all = length + std::ssize(response);
    const auto token = [&](int64_t at) { return at < length ? prompt[at] : response[at - length]; };
    for (int64_t at = parts[i].begin; at < parts[i].end; ++at) {
      if (at + 1 >= length && at + 1 < all) {
        predicting.push_back(std::ssize(tokens));
        targets.push_back(token(at + 1));
      }
      tokens.push_back(token(at));
      positions.push_back(at);
    }
    attention.query_begin.push_back(static_cast<int32_t>(tokens.size()));
    attention.cached.push_back(static_cast<int32_t>(parts[i].begin));
    last.push_back(std::ssize(tokens) - 1);
  }
  out.batch.tokens_T = to_device(at::tensor(tokens, at::kLong), device);
  out.batch.positions_T = to_device(at::tensor(positions, at::kLong), device);
  out.rows_R = to_device(at::tensor(predicting, at::kLong), device);
  out.targets_R = to_device(at::tensor(targets, at::kLong), device);
  out.last_S = to_device(at::tensor(last, at::kLong), device);
  return out;
}

Result<TokenBatch> PackedBatches::tokens(int32_t micro_batch, const SampleStore& store,
                                         const std::string& responses, const Rows& rows,
                                         at::Device device) {
  const auto found = packed_.find(micro_batch);
  if (found != packed_.end()) return found->second.batch;
  BRAID_ASSIGN(const TokenLists* prompts, store.tokens("prompt_ids"));
  BRAID_ASSIGN(const TokenLists* follow, store.tokens(responses));
  ResponseRows& packed = packed_[micro_batch];
  std::vector<uint64_t> ids;
  for (const size_t row : rows) ids.push_back(static_cast<uint64_t>(store.sample(row).id.value));
  packed = pack_responses(*prompts, *follow, rows, device, share_prompts_, ids);
  return packed.batch;
}

}  // namespace braid::inline samples

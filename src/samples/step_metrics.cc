#include "samples/step_metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/expm1.h>

#include <algorithm>
#include <numeric>

#include "data/response_text.h"

namespace braid::inline samples {

void note_lengths(const SampleStore& store, const Rows& rows, Metrics& metrics) {
  const std::vector<int64_t> prompts = store.prompt_lens();
  const at::Tensor truncated = *store.reals("truncated", rows);
  const std::vector<int64_t> lens = store.response_lens();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto response = static_cast<double>(lens[rows[i]]);
    const auto prompt = static_cast<double>(prompts[rows[i]]);
    const double cut = truncated[static_cast<int64_t>(i)].item<double>();
    for (const char* name : {"length/response_mean", "length/response_max", "length/response_min"})
      metrics[name].add(response);
    for (const char* name : {"length/prompt_mean", "length/prompt_max"}) metrics[name].add(prompt);
    metrics["length/truncated_frac"].add(cut);
    metrics["length/eos_frac"].add(1 - cut);
  }
}

void note_mismatch(const SampleStore& store, const Rows& rows, Metrics& metrics) {
  if (!store.has("sampler_logprobs") || !store.has("old_logprobs")) return;
  const at::Tensor gap =
      *store.reals("old_logprobs", rows) - *store.reals("sampler_logprobs", rows);
  if (gap.numel() == 0) return;
  const auto count = static_cast<double>(gap.numel());
  metrics["mismatch/logprob_abs_mean"].add(gap.abs().mean().item<double>(), count);
  metrics["mismatch/logprob_abs_max"].add(gap.abs().max().item<double>());
  metrics["mismatch/k3"].add((at::expm1(gap) - gap).mean().item<double>(), count);
}

int64_t rows_with_tokens(const SampleStore& store, const std::string& field, const Rows& rows) {
  const auto lists = store.tokens(field);
  if (!lists.ok()) return 0;
  return std::count_if(rows.begin(), rows.end(),
                       [&](size_t row) { return !(**lists)[row].empty(); });
}

int64_t row_tokens(const SampleStore& store, const Rows& rows) {
  const std::vector<int64_t> prompts = store.prompt_lens();
  const std::vector<int64_t> responses = store.response_lens();
  int64_t tokens = 0;
  for (const size_t row : rows) tokens += prompts[row] + responses[row];
  return tokens;
}

double token_imbalance(const std::vector<int64_t>& by_rank) {
  const int64_t all = std::accumulate(by_rank.begin(), by_rank.end(), int64_t{0});
  if (all == 0) return 1;
  const int64_t most = *std::max_element(by_rank.begin(), by_rank.end());
  return static_cast<double>(most * std::ssize(by_rank)) / static_cast<double>(all);
}

double token_imbalance(const Partition& partition) {
  double fullest = 0, mean = 0;
  for (const MiniBatch& minibatch : partition.minibatches) {
    std::vector<int64_t> by_rank;
    int64_t all = 0;
    for (const std::vector<int64_t>& tokens : minibatch.tokens) {
      by_rank.push_back(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
      all += by_rank.back();
    }
    const double of_rank = static_cast<double>(all) / static_cast<double>(by_rank.size());
    fullest += token_imbalance(by_rank) * of_rank;
    mean += of_rank;
  }
  return mean > 0 ? fullest / mean : 1;
}

std::vector<Json> sample_rows(const SampleStore& store, const Tokenizer* tokenizer,
                              const std::vector<std::string>& stops, int64_t step, size_t count) {
  std::vector<Json> out;
  const auto responses = store.tokens("response_ids");
  for (size_t i = 0; responses.ok() && i < std::min(count, store.size()); ++i) {
    Json row = {
        {"step", step}, {"sample", store.sample(i).id.value}, {"prompt", store.sample(i).prompt}};
    row["response_ids"] = (**responses)[i];
    if (tokenizer != nullptr)
      row["response"] = response_text(*tokenizer, (**responses)[i], stops).value();
    if (const auto rewards = store.reals("rewards", {i}); rewards.ok())
      row["reward"] = rewards->item<double>();
    if (const Json& parts = store.sample(i).rewards; !parts.is_null()) row["rewards"] = parts;
    if (!store.sample(i).drawn.empty()) row["drawn"] = drawn_json(store.sample(i));
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace braid::inline samples

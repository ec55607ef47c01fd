#include "scoring/score_samples.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "device/device_copy.h"
#include "passes/inference.h"
#include "program/partition.h"
#include "samples/call_rows.h"

namespace braid::inline scoring {
namespace {

std::vector<SampleRows> cut_samples(const TokenLists& prompts, const TokenLists& responses,
                                    const TrainConfig& train) {
  std::map<std::vector<int32_t>, GroupId> groups;
  std::vector<PartitionSample> samples;
  for (size_t row = 0; row < prompts.size(); ++row) {
    const auto number = static_cast<int64_t>(row);
    const GroupId group = groups.emplace(prompts[row], GroupId{number}).first->second;
    samples.push_back({SampleId{number}, group, static_cast<int64_t>(prompts[row].size()),
                       static_cast<int64_t>(responses[row].size())});
  }
  Strategy strategy;
  strategy.micro_tokens = train.micro_tokens;
  PartitionOptions options;
  options.share_prompts = train.share_prompts == "auto";
  return partition_samples(samples, strategy, options).minibatches[0].micro_batches[0];
}

}  // namespace

std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         const TrainConfig& train) {
  const at::NoGradGuard no_grad;
  TokenLists prompts, responses;
  for (const RewardSample& sample : samples) {
    prompts.push_back(sample.prompt_ids);
    responses.push_back(sample.response_ids);
  }
  std::vector<double> values(samples.size());
  const std::vector<SampleRows> batches = cut_samples(prompts, responses, train);
  model.keep_packed(batches.size() > 1);
  for (const SampleRows& rows : batches) {
    const ResponseRows packed = pack_responses(
        prompts, responses, rows_of(rows), model.options().device, train.share_prompts == "auto");
    const at::Tensor hidden = model.forward(packed.batch, nullptr);
    const at::Tensor scores = to_host(infer_hidden(model, Inferred::kScores, packed, hidden, 1));
    for (size_t i = 0; i < rows.size(); ++i)
      values[rows[i]] = scores[static_cast<int64_t>(i)].item<double>();
  }
  model.rest();
  return score_outcomes(values);
}

Status put_samples(const std::vector<RewardSample>& samples, const std::string& field,
                   SampleStore& store) {
  std::vector<StoredSample> stored;
  TokenLists prompts, responses;
  for (const RewardSample& sample : samples) {
    StoredSample& entry = stored.emplace_back();
    entry.id = SampleId{sample.sample_id};
    entry.group = GroupId{sample.group};
    prompts.push_back(sample.prompt_ids);
    responses.push_back(sample.response_ids);
  }
  store.begin(std::move(stored));
  BRAID_TRY(store.put_tokens("prompt_ids", store.all_rows(), std::move(prompts)));
  return store.put_tokens(field, store.all_rows(), std::move(responses));
}

Result<SampleStore> store_as_read(const Graph& graph, const SampleStore& like, const Rows& rows,
                                  const std::string& field, std::vector<RewardSample> samples) {
  std::vector<RewardSample> all(like.size());  // rows keep their numbers
  for (const size_t row : like.all_rows()) {
    all[row].sample_id = like.sample(row).id.value;
    all[row].group = like.sample(row).group.value;
  }
  for (size_t i = 0; i < rows.size(); ++i) all[rows[i]] = std::move(samples[i]);
  SampleStore out(graph);
  BRAID_TRY(put_samples(all, field, out));
  return out;
}

std::vector<RewardOutcome> score_outcomes(const std::vector<double>& values) {
  std::vector<RewardOutcome> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    out[i].kind = RewardOutcome::Kind::kValue;
    out[i].value = values[i];
  }
  return out;
}

}  // namespace braid::inline scoring

#include "sim/call_work.h"

#include <algorithm>

#include "batching/cache_pages.h"
#include "pricing/predict_generate.h"

namespace braid::inline sim {

int64_t sample_of(const SampleLengths& lengths, int64_t samples, int64_t i) {
  return i * static_cast<int64_t>(lengths.prompt.size()) / samples;
}

std::vector<BatchRequest> requests_of(const PlanningProblem& problem, const SampleLengths& lengths,
                                      int64_t samples, const SampleRows& rows) {
  const int64_t copies = std::max<int64_t>(1, problem.workload.samples_per_prompt);
  std::vector<BatchRequest> out;
  for (const int32_t row : rows) {
    const int64_t sample = sample_of(lengths, samples, row);
    const int64_t prompt = lengths.prompt_id.empty() ? sample / copies : lengths.prompt_id[sample];
    out.push_back({lengths.prompt[sample], lengths.response[sample], prompt});
  }
  return out;
}

BatchOptions batch_options(const PlanningProblem& problem, const Strategy& strategy,
                           const SimOptions& options) {
  BatchOptions out;
  out.max_batch_tokens = engine_batch_tokens(problem, options.generate_batch_tokens);
  out.max_concurrent =
      strategy.max_concurrent > 0 ? strategy.max_concurrent : problem.max_concurrent;
  out.most_response = longest_tokens(problem.workload.response);
  out.kv_budget_tokens = strategy.kv_budget_tokens;
  return out;
}

int64_t reserved_pages(const PlanningProblem& problem, const Strategy& strategy) {
  return problem.reserves_cache ? strategy.kv_budget_tokens / kPageTokens : 0;
}

LinkTime link_time(const Cluster& cluster, DeviceId from, DeviceId to, double bytes,
                   const Efficiency& efficiency) {
  const Link link = link_between(cluster, from, to);
  const Node& node = cluster.nodes[node_of(cluster, from)];
  CollectiveGroup pair = make_group(node.gpu, 2, 1, node.devices, node.nic_gbps_per_gpu);
  pair.nvlink = link.kind == LinkKind::kNvlink;
  pair.inside_gbytes_per_s = link.gbytes_per_s;
  pair.nic_gbps_per_gpu = link.gbytes_per_s * 8;
  return {send_s(bytes, link.kind != LinkKind::kNetwork, pair, efficiency), link.kind};
}

}  // namespace braid::inline sim

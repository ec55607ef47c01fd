#include "foreign/baselines/baselines.h"

namespace braid::inline foreign {

const std::vector<Baseline>& baselines() {
  static const std::vector<Baseline> all = {
      {"deepspeed-chat", "co-located, ZeRO-3, hybrid-engine generation", deepspeed_chat_plan},
      {"megatron", "symmetric: tp = node, pp = nodes, all calls alike", symmetric_megatron_plan},
      {"real-heuristic", "ReaL's hand-made PPO plan", real_heuristic_plan},
      {"nemo-aligner", "actor and reference | critic and reward, Megatron sizes",
       nemo_aligner_plan},
      {"openrlhf", "one group per model and one of generation engines", openrlhf_plan},
      {"verl", "hybrid engine: fully sharded training, engines on the same devices",
       verl_hybrid_plan}};
  return all;
}

}  // namespace braid::inline foreign

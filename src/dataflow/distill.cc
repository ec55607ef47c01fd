// On-policy distillation: the policy writes, a teacher says how likely it finds each token, and the
// log-ratio is the token's reward: the reverse KL of what the policy samples (Agarwal et al., 2024,
// arXiv 2306.13649; Gu et al., 2024, arXiv 2306.08543).
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {

Graph distill_graph(const AlgorithmOptions& options) {
  const RoleId actor{"actor"}, teacher{"teacher"};
  Graph graph{"distill", {{actor, false, true}, {teacher, false, false}}, {}};
  graph.calls = {fetch_prompts_call(), generate_call(), reward_call(), old_logprob_call(options)};
  graph.calls.push_back({"teacher_logprob",
                         CallKind::kInfer,
                         teacher,
                         "logprobs",
                         {"prompt_ids", "response_ids"},
                         {{"teacher_logprobs"}}});
  graph.calls.push_back({"advantages",
                         CallKind::kCompute,
                         {},
                         "distill_advantages",
                         {"rewards", "response_ids", "old_logprobs", "teacher_logprobs"},
                         {{"advantages"}}});
  AlgorithmOptions without = options;  // the teacher is in the advantages, no reference beside it
  without.kl.coef = 0;
  graph.calls.push_back(update_policy_call(without, "policy"));
  return graph;
}

}  // namespace braid::inline dataflow

// KTO: single responses that are wanted or not, a frozen reference, and a baseline that the whole
// step shares: the divergence of the policy from the reference on completions of other prompts
// (Ethayarajh et al., 2024, arXiv 2402.01306, §4.1), taken before the step's first update.
#include "dataflow/policy_graphs.h"

namespace braid::inline dataflow {
namespace {

Call fetch_labelled_call() {
  return {"fetch",
          CallKind::kFetch,
          {},
          "labelled",
          {},
          {{"prompt_ids", FieldType::kTokens, FieldShape::kPerSample},
           {"response_ids", FieldType::kTokens, FieldShape::kPerToken},
           {"wanted", FieldType::kReal, FieldShape::kPerSample},
           {"mismatched_ids", FieldType::kTokens, FieldShape::kPerToken}}};
}

// Log-probs of the completions of other prompts.
Call mismatched_call(const std::string& role, const std::string& name) {
  return {
      name,          CallKind::kInfer, RoleId{role}, "logprobs", {"prompt_ids", "mismatched_ids"},
      {{name + "s"}}};
}

}  // namespace

Graph kto_graph(const AlgorithmOptions&) {
  const RoleId actor{"actor"}, reference{"reference"};
  Graph graph{"kto", {{actor, false, true}, {reference, false, false}}, {}};
  graph.calls = {fetch_labelled_call(), mismatched_call("actor", "mismatched_logprob"),
                 mismatched_call("reference", "mismatched_ref_logprob"), ref_logprob_call()};
  graph.calls.push_back({"baseline",
                         CallKind::kCompute,
                         {},
                         "kto_baseline",
                         {"mismatched_logprobs", "mismatched_ref_logprobs"},
                         {{"kl_baseline", FieldType::kReal, FieldShape::kPerSample}}});
  graph.calls.push_back({"update_actor",
                         CallKind::kTrainStep,
                         actor,
                         "kto",
                         {"prompt_ids", "response_ids", "ref_logprobs", "wanted", "kl_baseline"},
                         {},
                         "policy"});
  return graph;
}

}  // namespace braid::inline dataflow

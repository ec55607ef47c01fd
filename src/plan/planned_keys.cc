#include "plan/planned_keys.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/text.h"
#include "config/reference.h"
#include "config/set_keys.h"

namespace braid::inline plan {
namespace {

const YamlNode* stated_at(const YamlNode& resolved, std::initializer_list<const char*> path) {
  const YamlNode* node = &resolved;
  for (const char* name : path) {
    node = node->find(name);
    if (node == nullptr || node->kind == YamlNode::Kind::kNull) return nullptr;
  }
  return node;
}

// Whether the workload states lengths that a limit of the configuration does not cut.
bool states_own_lengths(const YamlNode& resolved, const char* key,
                        const LengthDistribution& lengths) {
  if (stated_at(resolved, {"workload", key}) == nullptr) return false;
  return lengths.kind != LengthDistribution::Kind::kLognormal ||
         stated_at(resolved, {"workload", key, "longest"}) != nullptr;
}

bool has_role(const PlanningProblem& problem, const char* role) {
  return problem.models.count(role) > 0;
}

bool is_read(const Graph& graph, const std::string& field) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    return std::count(call.reads.begin(), call.reads.end(), field) > 0;
  });
}

// Why a key that counts for other algorithms does not for this one; empty if it does.
std::string not_of_this_graph(const std::string& key, const YamlNode& resolved,
                              const PlanningProblem& problem) {
  const YamlNode* graph_file = stated_at(resolved, {"plan", "graph"});
  if (is_within(key, "algorithm") && graph_file != nullptr && !graph_file->scalar.empty())
    return "plan.graph states the graph";
  const bool of_critic = is_within(key, "critic") && key != "critic.shared_trunk";
  if (of_critic && !has_role(problem, "critic")) return "no call uses a critic";
  if (is_within(key, "reference") && !has_role(problem, "reference"))
    return "no call uses a reference";
  if (is_within(key, "teacher") && !has_role(problem, "teacher")) return "no call uses a teacher";
  const bool weighs = key == "algorithm.tis_cap" || key == "algorithm.icepop_high";
  if (weighs && !is_read(problem.graph, "sampler_logprobs"))
    return "no call reads the sampler's log-probabilities";
  if (key == "workload.draws" && !draws_again(problem.graph))
    return "no call draws further prompts (algorithm.dynamic_sampling)";
  if (key == "algorithm.old_logprobs" && !is_read(problem.graph, "old_logprobs"))
    return "no call reads log-probabilities of before the update";
  const bool of_generation = is_within(key, "rollout") && key != "rollout.prompts_per_step" &&
                             key != "rollout.max_response_length";
  if ((of_generation || key == "algorithm.kl.coef" || key == "plan.generate_engine") &&
      !generates(problem.graph))
    return "no responses are generated";
  return "";
}

// Of a key that was set, in this configuration.
KeyMeaning meaning_here(const std::string& key, const YamlNode& resolved,
                        const PlanningProblem& problem) {
  const auto without_effect = [](std::string why) {
    return KeyMeaning{PlanEffect::kNoCost, std::move(why)};
  };
  if (key == "data.max_prompt_length" &&
      states_own_lengths(resolved, "prompt_length", problem.workload.prompt))
    return without_effect("workload.prompt_length states the lengths");
  if (key == "rollout.max_response_length" &&
      states_own_lengths(resolved, "response_length", problem.workload.response))
    return without_effect("workload.response_length states the lengths");
  if (std::string why = not_of_this_graph(key, resolved, problem); !why.empty())
    return without_effect(std::move(why));
  const auto model_of_role = [&](const char* role) {
    const auto found = problem.models.find(role);
    return found == problem.models.end() ? nullptr : &found->second.spec;
  };
  const ModelSize *actor = model_of_role("actor"), *critic = model_of_role("critic");
  if (key == "critic.init_from" && actor != nullptr && critic != nullptr && *actor == *critic)
    return without_effect("either source has the actor's size");
  if (key == "train.share_prompts" && !problem.train_engine.empty())
    return without_effect("plan.train_engine computes every sample whole");
  if (key == "train.reduction" && !problem.train_engine.empty())
    return without_effect("plan.train_engine sums as its backend does");
  const bool alone = problem.workload.samples_per_prompt < 2 || !generates(problem.graph);
  if (key == "train.share_prompts" && alone)
    return without_effect("no samples have the same prompt");
  if (key == "device" && problem.cluster.nodes.front().gpu.key != "this-machine")
    return without_effect("cluster says what is planned for");
  return meaning_of_key(key);
}

}  // namespace

KeyMeaning meaning_of_key(const std::string& key) {
  const KeyFacts* facts = facts_of(key);
  if (facts == nullptr || !facts->plan)
    return {PlanEffect::kNotPriced, "the planner does not know this key"};
  return {facts->plan->effect, facts->plan->why};
}

PlannedKeys planned_keys(const YamlNode& resolved, const PlanningProblem& problem) {
  PlannedKeys out;
  visit_set_keys(resolved, [&](const std::string& key, const YamlNode&) {
    const KeyMeaning meaning = meaning_here(key, resolved, problem);
    const auto add = [&](auto& list, auto&& entry) {
      if (std::find(list.begin(), list.end(), entry) == list.end()) list.push_back(entry);
    };
    if (meaning.effect == PlanEffect::kPriced) add(out.read, key);
    if (meaning.effect == PlanEffect::kNoCost)
      add(out.without_effect, PlannedKeys::Entry{key, meaning.why});
    if (meaning.effect == PlanEffect::kNotPriced)
      add(out.not_priced, PlannedKeys::Entry{key, meaning.why});
  });
  return out;
}

std::vector<std::string> key_notes(const PlannedKeys& keys) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  const auto add = [&by_reason](const std::string& what, const PlannedKeys::Entry& entry) {
    const std::string reason = cat(what, " (", entry.why, ")");
    auto found = std::find_if(by_reason.begin(), by_reason.end(),
                              [&](const auto& item) { return item.first == reason; });
    if (found == by_reason.end()) found = by_reason.insert(found, {reason, {}});
    found->second.push_back(entry.key);
  };
  for (const PlannedKeys::Entry& entry : keys.not_priced) add("not priced", entry);
  // Only those that are priced in other configurations: nobody expects a seed to cost time.
  for (const PlannedKeys::Entry& entry : keys.without_effect)
    if (meaning_of_key(entry.key).effect == PlanEffect::kPriced) add("without effect", entry);
  std::vector<std::string> out;
  for (const auto& [reason, names] : by_reason) out.push_back(cat(join(names, ", "), ": ", reason));
  return out;
}

}  // namespace braid::inline plan

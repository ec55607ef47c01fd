#include "plan/planned_keys.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/text.h"
#include "config/set_keys.h"

namespace braid::inline plan {
namespace {

using Effect = KeyMeaning::Effect;

constexpr const char* kOfTheResult = "changes what is learned, not what a step costs";
constexpr const char* kOfTheData = "says what the data are; their lengths are those of workload";
constexpr const char* kBesideTheStep = "happens beside the steps that are priced";
constexpr const char* kOfTheFiles = "says where files are";
constexpr const char* kLengths =
    "lengths of responses are those of workload.response_length; state there what they become";
constexpr const char* kChosen =
    "the plan has its own; fix it under the same name as parallel.CALL.NAME, with --keep";

struct Rule {
  const char* key;  // itself, or the beginning of its path
  Effect effect;
  const char* why;
};

// The first that matches counts.
constexpr Rule kRules[] = {
    {"run", Effect::kWithoutEffect, kOfTheFiles},
    {"plan.auto", Effect::kWithoutEffect, "of 'braid train': 'braid plan' always searches"},
    {"model.path", Effect::kRead, ""},
    {"model.config", Effect::kRead, ""},
    {"model.size", Effect::kRead, ""},
    {"model.dtype", Effect::kRead, ""},
    {"tokenizer", Effect::kWithoutEffect, kOfTheFiles},
    {"device", Effect::kRead, ""},
    {"lora.rank", Effect::kRead, ""},
    {"lora.targets", Effect::kNotPriced, "adapters are priced on every linear layer"},
    {"lora", Effect::kWithoutEffect, kOfTheResult},
    {"reference", Effect::kRead, ""},
    {"teacher", Effect::kRead, ""},
    {"critic.path", Effect::kRead, ""},
    {"critic.size", Effect::kRead, ""},
    {"critic.init_from", Effect::kRead, ""},
    {"critic.warmup_steps", Effect::kNotPriced,
     "a step after the warm-up is planned; in a step of the warm-up the actor is not trained"},
    {"critic", Effect::kWithoutEffect, kOfTheResult},
    {"data.max_prompt_length", Effect::kRead, ""},
    {"data", Effect::kWithoutEffect, kOfTheData},
    {"rollout.prompts_per_step", Effect::kRead, ""},
    {"rollout.samples_per_prompt", Effect::kRead, ""},
    {"rollout.max_response_length", Effect::kRead, ""},
    {"rollout.min_response_length", Effect::kNotPriced, kLengths},
    {"rollout.ignore_eos", Effect::kNotPriced, kLengths},
    {"rollout.stop", Effect::kNotPriced, kLengths},
    {"rollout.max_concurrent", Effect::kNotPriced, kChosen},
    {"rollout.kv_budget_tokens", Effect::kNotPriced, kChosen},
    {"rollout.longest_first", Effect::kNotPriced,
     "responses are admitted in the order of the batch: their lengths are not known before"},
    {"rollout.replay", Effect::kNotPriced, "a step that generates is planned"},
    {"rollout.record", Effect::kNotPriced, kBesideTheStep},
    {"rollout", Effect::kWithoutEffect, kOfTheResult},
    {"algorithm.name", Effect::kRead, ""},
    {"algorithm.kl.coef", Effect::kRead, ""},
    {"algorithm.old_logprobs", Effect::kRead, ""},
    {"algorithm.tis_cap", Effect::kRead, ""},
    {"algorithm.stop_kl", Effect::kNotPriced, "no update is priced as ended early"},
    {"algorithm", Effect::kWithoutEffect, kOfTheResult},
    {"optim.actor.name", Effect::kNotPriced, "states are priced as those of adamw"},
    {"optim.critic.name", Effect::kNotPriced, "states are priced as those of adamw"},
    {"optim.reward.name", Effect::kNotPriced, "states are priced as those of adamw"},
    {"optim", Effect::kWithoutEffect, kOfTheResult},
    {"train.epochs_per_rollout", Effect::kRead, ""},
    {"train.minibatches", Effect::kRead, ""},
    {"train.micro_tokens", Effect::kNotPriced, kChosen},
    {"train.share_prompts", Effect::kRead, ""},
    {"train.reduction", Effect::kRead, ""},
    {"train.recompute", Effect::kNotPriced, kChosen},
    {"train.offload", Effect::kNotPriced,
     "the plan says what waits on the host; fix it in a plan file (plan.file)"},
    {"train.memory_limit_gib", Effect::kNotPriced,
     "plan.memory_limit_gib says what a plan may take"},
    {"train.rehearse", Effect::kWithoutEffect, kBesideTheStep},
    {"train.threads", Effect::kNotPriced, "devices have the rates of cluster"},
    {"train", Effect::kWithoutEffect, kOfTheResult},
    {"reward[].type", Effect::kRead, ""},
    {"reward[].path", Effect::kRead, ""},
    {"reward[].size", Effect::kRead, ""},
    {"reward[].timeout_s", Effect::kWithoutEffect, "bounds a wait"},
    {"reward[].workers", Effect::kNotPriced, "rewards other than models take no time in a plan"},
    {"reward[].batch_samples", Effect::kNotPriced,
     "rewards other than models take no time in a plan"},
    {"reward", Effect::kWithoutEffect, kOfTheResult},
    {"reward_total", Effect::kWithoutEffect, kOfTheResult},
    {"checkpoint.every_steps", Effect::kNotPriced, kBesideTheStep},
    {"checkpoint.every_minutes", Effect::kNotPriced, kBesideTheStep},
    {"checkpoint.hf_every_steps", Effect::kNotPriced, kBesideTheStep},
    {"checkpoint", Effect::kWithoutEffect, kOfTheFiles},
    {"eval", Effect::kNotPriced, kBesideTheStep},
    {"export", Effect::kWithoutEffect, kOfTheFiles},
    {"log", Effect::kWithoutEffect, "says what is printed"},
    {"runtime", Effect::kWithoutEffect, "of 'braid train' with device=emulated"},
    {"cluster", Effect::kRead, ""},
    {"workload", Effect::kRead, ""},
    {"placement", Effect::kRead, ""},
    {"parallel", Effect::kRead, ""},
    {"plan", Effect::kRead, ""},
};

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
  if (is_within(key, "critic") && !has_role(problem, "critic")) return "no call uses a critic";
  if (is_within(key, "reference") && !has_role(problem, "reference"))
    return "no call uses a reference";
  if (is_within(key, "teacher") && !has_role(problem, "teacher")) return "no call uses a teacher";
  if (key == "algorithm.tis_cap" && !is_read(problem.graph, "sampler_logprobs"))
    return "no call reads the sampler's log-probabilities";
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
    return KeyMeaning{Effect::kWithoutEffect, std::move(why)};
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
    return found == problem.models.end() ? nullptr : &found->second.size;
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
  for (const Rule& rule : kRules)
    if (is_within(key, rule.key)) return {rule.effect, rule.why};
  return {Effect::kNotPriced, "the planner does not know this key"};
}

PlannedKeys planned_keys(const YamlNode& resolved, const PlanningProblem& problem) {
  PlannedKeys out;
  visit_set_keys(resolved, [&](const std::string& key, const YamlNode&) {
    const KeyMeaning meaning = meaning_here(key, resolved, problem);
    const auto add = [&](auto& list, auto&& entry) {
      if (std::find(list.begin(), list.end(), entry) == list.end()) list.push_back(entry);
    };
    if (meaning.effect == Effect::kRead) add(out.read, key);
    if (meaning.effect == Effect::kWithoutEffect)
      add(out.without_effect, PlannedKeys::Entry{key, meaning.why});
    if (meaning.effect == Effect::kNotPriced)
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
    if (meaning_of_key(entry.key).effect == Effect::kRead) add("without effect", entry);
  std::vector<std::string> out;
  for (const auto& [reason, names] : by_reason) out.push_back(cat(join(names, ", "), ": ", reason));
  return out;
}

}  // namespace braid::inline plan

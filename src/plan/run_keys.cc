#include "plan/run_keys.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "config/algorithm_traits.h"
#include "config/evaluates.h"
#include "config/reference.h"
#include "config/set_keys.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

constexpr const char* kOfPlanning = "'braid plan' and 'braid simulate' read it";

bool graph_has(const Graph& graph, const char* role) {
  return find_role(graph, RoleId{role}) != nullptr;
}

bool trains_role(const Graph& graph, const char* role) {
  const RoleSpec* spec = find_role(graph, RoleId{role});
  return spec != nullptr && spec->trained;
}

// "actor" of "optim.actor.lr".
const OptimizerConfig& optimizer_of(const std::string& key, const Config& config) {
  if (is_within(key, "optim.critic")) return config.optim.critic;
  return is_within(key, "optim.reward") ? config.optim.reward : config.optim.actor;
}

std::string why_optimizer(const std::string& key, const RunFacts& run) {
  for (const char* role : {"actor", "critic", "reward"}) {
    if (!is_within(key, cat("optim.", role)) || trains_role(run.graph, role)) continue;
    if (std::string(role) == "critic" && has_values(run.graph))
      return "the critic is a head of the policy, which optim.actor trains (critic.shared_trunk)";
    const bool model = std::string(role) != "critic";
    return cat(run.config.algorithm.name, !model ? " has no critic"
                                          : std::string(role) == "actor"
                                              ? " trains no policy"
                                              : " trains no reward model");
  }
  const OptimizerConfig& optim = optimizer_of(key, run.config);
  const std::string name = key.substr(key.rfind('.') + 1);
  if (optim.name == "sgd" && (name == "betas" || name == "eps")) return "sgd has no moments";
  if (optim.schedule == "constant" && name == "min_lr_ratio") return "the schedule is constant";
  if (optim.weight_decay == 0 && name == "decay_norms") return "weight_decay is 0";
  return "";
}

// What an evaluation reads of the sections that are about generating and scoring.
bool evaluation_reads(const std::string& key) {
  if (is_within(key, "reward")) return true;
  for (const char* name : {"min_response_length", "max_response_length", "ignore_eos", "stop",
                           "kv_budget_tokens", "max_concurrent"})
    if (key == cat("rollout.", name)) return true;
  return false;
}

std::string of_generation(const std::string& key, const RunFacts& run) {
  if (generates(run.graph) || (evaluates(run.config) && evaluation_reads(key))) return "";
  return run.config.algorithm.name + " generates nothing";
}

std::string of_policy_loss(const std::string& key, const RunFacts& run) {
  if (std::string why = of_generation(key, run); !why.empty()) return why;
  const bool learns =
      std::any_of(run.graph.calls.begin(), run.graph.calls.end(), [](const Call& c) {
        return c.kind == CallKind::kTrainStep && contains(c.reads, "advantages");
      });
  return learns ? "" : run.config.algorithm.name + " learns from pairs, not from advantages";
}

std::string why_kl(const std::string& key, const RunFacts& run) {
  const KlOptions& kl = run.config.algorithm.kl;
  if (std::string why = of_policy_loss(key, run); !why.empty()) return why;
  return kl.coef == 0 ? "algorithm.kl.coef is 0" : "";
}

std::string why_kl_estimate(const std::string& key, const RunFacts& run) {
  if (std::string why = why_kl(key, run); !why.empty()) return why;
  return run.config.algorithm.kl.in == "own" ? "algorithm.kl.in is own" : "";
}

std::string why_adaptive_kl(const std::string& key, const RunFacts& run) {
  if (std::string why = why_kl(key, run); !why.empty()) return why;
  return run.config.algorithm.kl.controller == "fixed" ? "algorithm.kl.controller is fixed" : "";
}

using Why = std::string (*)(const std::string& key, const RunFacts& run);

std::string always_read(const std::string&, const RunFacts&) { return ""; }
std::string of_planning(const std::string&, const RunFacts&) { return kOfPlanning; }

std::string of_workload(const std::string&, const RunFacts& run) {
  return run.priced ? "" : cat(kOfPlanning, "; a run has the lengths of its data");
}

std::string of_plans(const std::string&, const RunFacts& run) {
  return run.plan != nullptr ? "" : "no plan is stated, and one process trains";
}

std::string of_plan_memory(const std::string&, const RunFacts& run) {
  return run.plan != nullptr
             ? ""
             : "no plan is stated; train.memory_limit_gib limits what this process takes";
}

std::string of_critic(const std::string&, const RunFacts& run) {
  return has_values(run.graph) ? "" : run.config.algorithm.name + " has no critic";
}

std::string of_evaluation(const std::string&, const RunFacts& run) {
  return evaluates(run.config) ? ""
                               : "no evaluation is asked for (eval.every_steps, "
                                 "eval.at_start); 'braid eval' reads it";
}

std::string of_adapters(const std::string&, const RunFacts& run) {
  return run.config.lora.rank > 0 ? "" : "lora.rank is 0";
}

std::string of_trackers(const std::string&, const RunFacts& run) {
  const LogConfig& log = run.config.log;
  return log.command.empty() && log.wandb.empty() && log.mlflow.empty()
             ? "no log.command, log.wandb or log.mlflow is set"
             : "";
}

std::string of_normalization(const std::string& key, const RunFacts& run) {
  if (std::string why = of_policy_loss(key, run); !why.empty()) return why;
  return run.config.algorithm.advantages.empty() ? ""
                                                 : "algorithm.advantages gives them as they are";
}

std::string of_clipped_loss(const std::string& key, const RunFacts& run) {
  if (std::string why = of_policy_loss(key, run); !why.empty()) return why;
  return run.config.algorithm.loss.empty() ? "" : "algorithm.loss has ratios and bounds of its own";
}

std::string of_discounts(const std::string& key, const RunFacts& run) {
  const std::string& name = run.config.algorithm.name;
  return algorithm_traits(name).discounts ? of_normalization(key, run)
                                          : name + " discounts no rewards";
}

std::string of_token_rewards(const std::string& key, const RunFacts& run) {
  const std::string& name = run.config.algorithm.name;
  if (name == "distill") return "distill learns from the teacher's log-probs";
  return algorithm_traits(name).rewards_tokens ? of_normalization(key, run)
                                               : name + " has no rewards per token";
}

std::string of_names(const RunFacts& run, const std::vector<std::string>& names, const char* why) {
  const std::string& name = run.config.algorithm.name;
  return std::find(names.begin(), names.end(), name) != names.end() ? "" : cat(name, " ", why);
}

std::string of_pairs(const std::string&, const RunFacts& run) {
  return of_names(run, {"dpo", "online_dpo"}, "has no loss of preferences to choose");
}

std::string of_labels(const std::string&, const RunFacts& run) {
  return of_names(run, {"kto"}, "has no labels of samples");
}

std::string of_reward_model(const std::string&, const RunFacts& run) {
  return of_names(run, {"rm"}, "trains no reward model");
}

std::string of_model_config(const std::string&, const RunFacts& run) {
  return run.config.model.path.empty() ? "" : "model.path is set, and its config.json counts";
}

std::string of_trained_adapters(const std::string& key, const RunFacts& run) {
  return trains_role(run.graph, "actor") ? of_adapters(key, run)
                                         : run.config.algorithm.name + " trains no policy";
}

std::string of_reference(const std::string&, const RunFacts& run) {
  return graph_has(run.graph, "reference") ? "" : "no reference model is loaded";
}

std::string of_teacher(const std::string&, const RunFacts& run) {
  return graph_has(run.graph, "teacher") ? "" : run.config.algorithm.name + " has no teacher";
}

std::string of_critic_source(const std::string& key, const RunFacts& run) {
  return run.config.critic.path.empty() ? of_critic(key, run) : "critic.path is set";
}

std::string of_given_samples(const std::string&, const RunFacts& run) {
  const bool samples = std::any_of(
      run.graph.calls.begin(), run.graph.calls.end(),
      [](const Call& c) { return c.kind == CallKind::kFetch && c.function == "samples"; });
  return samples ? "" : run.config.algorithm.name + " learns from no given responses";
}

std::string of_constant_norm(const std::string&, const RunFacts& run) {
  return run.config.algorithm.loss_agg == "constant_norm"
             ? ""
             : "algorithm.loss_agg is not constant_norm";
}

std::string of_beta(const std::string&, const RunFacts& run) {
  return of_names(run, {"dpo", "online_dpo", "orpo", "kto"}, "has no such number");
}

std::string of_cpu(const std::string&, const RunFacts& run) {
  return run.config.device == "cpu" ? "" : "it limits tensors of device: cpu";
}

std::string of_skipping(const std::string&, const RunFacts& run) {
  return run.config.train.on_nonfinite == "skip" ? "" : "train.on_nonfinite is stop";
}

std::string of_tensor_parallel(const std::string&, const RunFacts& run) {
  if (run.plan == nullptr) return "one process has all of every sum";
  const bool cuts = std::any_of(run.plan->calls.begin(), run.plan->calls.end(),
                                [](const CallPlan& call) { return call.strategy.tp > 1; });
  return cuts ? "" : "no call of the plan has tp above 1";
}

std::string of_overlong(const std::string& key, const RunFacts& run) {
  const bool off = generates(run.graph) && run.config.reward_total.overlong_buffer == 0;
  return off ? "reward_total.overlong_buffer is 0" : of_generation(key, run);
}

std::string of_draws(const std::string&, const RunFacts& run) {
  return draws_again(run.graph) ? "" : "algorithm.dynamic_sampling is false";
}

std::string of_carried(const std::string& key, const RunFacts& run) {
  if (std::string why = of_generation(key, run); !why.empty()) return why;
  return carried_steps(run.graph) > 0 ? "" : "rollout.in_flight is 1, and every step waits for all";
}

std::string of_resuming(const std::string&, const RunFacts& run) {
  return run.config.checkpoint.resume == "none" ? "checkpoint.resume is none" : "";
}

struct Reason {
  ReadIf when;
  Why why;
};

constexpr Reason kReasons[] = {
    {ReadIf::kAlways, always_read},
    {ReadIf::kPlanning, of_planning},
    {ReadIf::kPlan, of_plans},
    {ReadIf::kPlanMemory, of_plan_memory},
    {ReadIf::kPrices, of_workload},
    {ReadIf::kAdapters, of_adapters},
    {ReadIf::kTrainedAdapters, of_trained_adapters},
    {ReadIf::kWithoutModelPath, of_model_config},
    {ReadIf::kReference, of_reference},
    {ReadIf::kTeacher, of_teacher},
    {ReadIf::kCritic, of_critic},
    {ReadIf::kCriticSource, of_critic_source},
    {ReadIf::kGivenSamples, of_given_samples},
    {ReadIf::kGeneration, of_generation},
    {ReadIf::kEvaluation, of_evaluation},
    {ReadIf::kKl, why_kl},
    {ReadIf::kKlEstimate, why_kl_estimate},
    {ReadIf::kAdaptiveKl, why_adaptive_kl},
    {ReadIf::kDiscounts, of_discounts},
    {ReadIf::kTokenRewards, of_token_rewards},
    {ReadIf::kPolicyLoss, of_policy_loss},
    {ReadIf::kNormalization, of_normalization},
    {ReadIf::kClippedLoss, of_clipped_loss},
    {ReadIf::kConstantNorm, of_constant_norm},
    {ReadIf::kPreferencesOrLabels, of_beta},
    {ReadIf::kPairs, of_pairs},
    {ReadIf::kLabels, of_labels},
    {ReadIf::kRewardModel, of_reward_model},
    {ReadIf::kOptimizer, why_optimizer},
    {ReadIf::kCpu, of_cpu},
    {ReadIf::kSkipping, of_skipping},
    {ReadIf::kTensorParallel, of_tensor_parallel},
    {ReadIf::kOverlong, of_overlong},
    {ReadIf::kDraws, of_draws},
    {ReadIf::kCarried, of_carried},
    {ReadIf::kResuming, of_resuming},
    {ReadIf::kTrackers, of_trackers},
};

// Null where the table above lacks it.
Why why_of(ReadIf when) {
  for (const Reason& reason : kReasons)
    if (reason.when == when) return reason.why;
  return nullptr;
}

// A key whose place the plan takes, and what of it is to be compared.
struct Overruled {
  const char* key;
  std::string value;  // of the configuration
  std::function<bool(const Call&)> concerns;
  // What the plan says for a call; "" where it leaves the key its say.
  std::function<std::string(const Strategy&)> says;
};

std::vector<Overruled> overruled_keys(const Config& config) {
  const auto passes = [](const Call& call) { return call.kind != CallKind::kGenerate; };
  const auto updates = [](const Call& call) { return call.kind == CallKind::kTrainStep; };
  const auto samples = [](const Call& call) { return call.kind == CallKind::kGenerate; };
  const int64_t tokens = config.train.micro_tokens;
  const bool recompute = config.train.recompute;
  const auto other = [](const char* name, int64_t value, int64_t ours) {
    return value == 0 || value == ours ? "" : cat(name, " ", value);
  };
  return {
      {"train.micro_tokens", cat(tokens), passes,
       [tokens](const Strategy& s) {
         if (s.micro_tokens == tokens) return std::string();
         return s.micro_tokens > 0 ? cat("micro_tokens ", s.micro_tokens)
                                   : cat("micro_batches ", s.micro_batches);
       }},
      {"train.recompute", recompute ? "true" : "false", updates,
       [recompute](const Strategy& s) {
         const bool same = s.recompute == (recompute ? Recompute::kFull : Recompute::kNone);
         return same ? std::string() : cat("recompute ", recompute_name(s.recompute));
       }},
      {"rollout.max_concurrent", cat(config.rollout.max_concurrent), samples,
       [&config, other](const Strategy& s) {
         return other("max_concurrent", s.max_concurrent, config.rollout.max_concurrent);
       }},
      {"rollout.kv_budget_tokens", cat(config.rollout.kv_budget_tokens), samples,
       [&config, other](const Strategy& s) {
         return other("kv_budget_tokens", s.kv_budget_tokens, config.rollout.kv_budget_tokens);
       }},
  };
}

// "micro_batches 1 (old_logprob, update_actor)" of the calls for which the plan says otherwise.
std::string said_by_plan(const Overruled& overruled, const RunFacts& run) {
  std::vector<std::pair<std::string, std::vector<std::string>>> calls;
  for (const CallPlan& entry : run.plan->calls) {
    const Call* call = find_call(run.graph, entry.call);
    if (call == nullptr || !uses_model(*call) || !overruled.concerns(*call)) continue;
    const std::string said = overruled.says(entry.strategy);
    if (said.empty()) continue;
    auto found = std::find_if(calls.begin(), calls.end(),
                              [&](const auto& item) { return item.first == said; });
    if (found == calls.end()) found = calls.insert(found, {said, {}});
    found->second.push_back(entry.call);
  }
  std::vector<std::string> parts;
  for (const auto& [said, names] : calls) parts.push_back(cat(said, " (", join(names, ", "), ")"));
  return join(parts, ", ");
}

// One reason, and the keys that share it in the order in which they were set.
struct Unread {
  std::string why, origin;
  std::vector<std::string> keys;
};

std::string unread_text(const Unread& unread) {
  return cat(unread.origin, ": ", join(unread.keys, ", "), unread.keys.size() == 1 ? " is" : " are",
             " not read: ", unread.why);
}

// An empty text or list says nothing.
bool is_empty(const YamlNode& value) {
  return value.kind == YamlNode::Kind::kList ? value.list.empty() : value.scalar.empty();
}

}  // namespace

std::string why_unread(const std::string& key, const RunFacts& run) {
  const KeyFacts* facts = facts_of(key);
  const Why why = facts == nullptr || !facts->read ? nullptr : why_of(*facts->read);
  return why == nullptr ? kUnknownKey : why(key, run);
}

std::vector<std::string> run_key_notes(const YamlNode& resolved, const RunFacts& run) {
  std::vector<Unread> unread;
  std::vector<std::string> notes;
  const std::vector<Overruled> overruled = overruled_keys(run.config);
  visit_set_keys(resolved, [&](const std::string& key, const YamlNode& value) {
    if (is_empty(value)) return;
    if (const std::string why = why_unread(key, run); !why.empty()) {
      auto found = std::find_if(unread.begin(), unread.end(),
                                [&](const Unread& item) { return item.why == why; });
      if (found == unread.end()) found = unread.insert(found, {why, value.origin, {}});
      if (std::find(found->keys.begin(), found->keys.end(), key) == found->keys.end())
        found->keys.push_back(key);
      return;
    }
    for (const Overruled& item : overruled) {
      const bool planned = run.plan != nullptr && key == item.key;
      if (const std::string said = planned ? said_by_plan(item, run) : ""; !said.empty())
        notes.push_back(cat(value.origin, ": ", key, ": the plan overrules ", item.value, ": ",
                            said, "; say in the plan (plan.file or parallel) what is to count"));
    }
  });
  for (const Unread& item : unread) notes.push_back(unread_text(item));
  return notes;
}

}  // namespace braid::inline plan

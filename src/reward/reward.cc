#include "reward/reward.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "reward/outcome.h"

namespace braid::inline reward {
namespace {

Status check_choice(const char* key, const std::string& value,
                    const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return ok_status();
  return invalid_input(cat(key, ": '", value, "'", did_you_mean(value, choices),
                           "; choices: ", join(choices, ", ")));
}

Status require(const RewardOptions& options, const char* key, bool present) {
  if (present) return ok_status();
  return invalid_input(cat("type ", options.type, " needs '", key, "'"));
}

Status check_rule(const RewardOptions& options) {
  BRAID_TRY(require(options, "rule", !options.rule.empty()));
  BRAID_TRY(check_choice("unit", options.unit, {"tokens", "chars"}));
  if (options.rule == "regex" && options.pattern.empty())
    return invalid_input("rule regex needs 'pattern'");
  if (options.rule == "length" && !(options.target > 0))
    return invalid_input("rule length needs a 'target' above 0");
  return make_rule_reward(options).status();  // names and expressions are checked where they live
}

Status check_python(const RewardOptions& options) {
  BRAID_TRY(require(options, "path", !options.path.empty()));
  BRAID_TRY(require(options, "function", !options.function.empty()));
  if (options.kwargs.kind != YamlNode::Kind::kNull && options.kwargs.kind != YamlNode::Kind::kMap)
    return invalid_input("kwargs must be names with values, such as {max_len: 100}");
  BRAID_TRY(check_choice("signature", options.signature, {"auto", "verl", "verl_batch", "trl"}));
  BRAID_TRY(check_choice("completions", options.completions, {"auto", "messages", "text"}));
  return check_choice("batch", options.batch, {"auto", "sample", "group", "step"});
}

Status check_type(const RewardOptions& options) {
  BRAID_TRY(check_choice("type", options.type, {"rule", "http", "command", "python", "model"}));
  if (options.type == "rule") return check_rule(options);
  if (options.type == "http") return make_http_reward(options).status();
  if (options.type == "command")
    return require(options, "command",
                   !options.command.empty() && !options.command.front().empty());
  if (options.type == "python") return check_python(options);
  return ok_status();
}

Status check_numbers(const RewardOptions& options) {
  if (!std::isfinite(options.weight)) return invalid_input("weight must be a finite number");
  if (!(options.timeout_s > 0 && options.timeout_s <= 1e6))
    return invalid_input("timeout_s must be above 0 and at most 1000000");
  if (!(options.outage_s >= 0 && options.outage_s <= 1e6))
    return invalid_input("outage_s must be between 0 and 1000000");
  if (options.retries < 1) return invalid_input("retries must be at least 1");
  if (options.workers < 1 || options.workers > 1024)
    return invalid_input("workers must be between 1 and 1024");
  if (options.batch_samples < 1) return invalid_input("batch_samples must be at least 1");
  if (options.memory_mb < 0) return invalid_input("memory_mb must be at least 0 (0 = no limit)");
  return ok_status();
}

Result<std::unique_ptr<Reward>> make_checked(const RewardOptions& options) {
  if (options.type == "rule") return make_rule_reward(options);
  if (options.type == "http") return make_http_reward(options);
  if (options.type == "command") return make_command_reward(options);
  if (options.type == "python") return make_python_reward(options);
  return invalid_input("type model is scored by the engine, not by itself");
}

std::string place_of(const RewardOptions& options) {
  return cat("reward '", reward_name(options), "'");
}

}  // namespace

std::string reward_name(const RewardOptions& options) {
  return options.name.empty() ? options.type : options.name;
}

std::vector<std::string> reward_keys(const std::string& type) {
  static const std::map<std::string, std::vector<std::string>> own = {
      {"rule", {"rule", "pattern", "target", "unit", "retries"}},
      {"http", {"url", "auth_token", "batch_samples", "timeout_s", "workers", "outage_s"}},
      {"command", {"command", "timeout_s", "workers", "memory_mb", "retries"}},
      {"python",
       {"path", "function", "signature", "batch", "completions", "kwargs", "timeout_s", "workers",
        "memory_mb", "retries"}},
      {"model", {"path", "size"}}};
  const auto found = own.find(type);
  if (found == own.end()) return {};
  std::vector<std::string> keys = {"name", "type", "weight", "on_error"};
  keys.insert(keys.end(), found->second.begin(), found->second.end());
  return keys;
}

Status check_reward(const RewardOptions& options) {
  Status status = check_numbers(options);
  if (status.ok())
    status = check_choice("on_error", options.on_error, {"stop", "drop", "retry", "zero"});
  if (status.ok()) status = check_type(options);
  return status.ok() ? status : status.at(place_of(options));
}

Status check_rewards(const std::vector<RewardOptions>& options) {
  std::set<std::string> names;
  for (const RewardOptions& entry : options) {
    BRAID_TRY(check_reward(entry));
    if (!names.insert(reward_name(entry)).second)
      return invalid_input(
          cat("two rewards are called '", reward_name(entry), "'; give each its own 'name'"));
  }
  return ok_status();
}

Result<std::unique_ptr<Reward>> make_reward(const RewardOptions& options) {
  BRAID_TRY(check_reward(options));
  return make_checked(options).at(place_of(options));
}

Result<std::vector<std::unique_ptr<Reward>>> make_rewards(
    const std::vector<RewardOptions>& options) {
  BRAID_TRY(check_rewards(options));
  std::vector<std::unique_ptr<Reward>> rewards(options.size());
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i].type == "model") continue;
    BRAID_ASSIGN(rewards[i], make_reward(options[i]));
  }
  return rewards;
}

}  // namespace braid::inline reward

#include "config/load.h"

#include "base/text.h"
#include "config/binder.h"

namespace braid {
namespace {

Status check_choice(const char* key, const std::string& value,
                    const std::vector<std::string>& allowed) {
  for (const std::string& choice : allowed)
    if (value == choice) return ok_status();
  return invalid_input(cat(key, ": '", value, "' is not one of ", join(allowed, ", "),
                           did_you_mean(value, allowed)));
}

Status check_positive(const char* key, double value) {
  if (value > 0) return ok_status();
  return invalid_input(cat(key, ": must be greater than 0, not ", value));
}

Status check_optimizer(const char* role, const OptimizerConfig& optim) {
  const std::string prefix = cat("optim.", role, ".");
  BRAID_TRY(check_positive((prefix + "lr").c_str(), optim.lr));
  if (optim.betas.size() != 2)
    return invalid_input(prefix + "betas: two numbers are needed, such as [0.9, 0.999]");
  return check_choice((prefix + "schedule").c_str(), optim.schedule,
                      {"constant", "linear", "cosine"});
}

Status check_rollout(const RolloutConfig& rollout) {
  BRAID_TRY(check_positive("rollout.prompts_per_step", rollout.prompts_per_step));
  BRAID_TRY(check_positive("rollout.samples_per_prompt", rollout.samples_per_prompt));
  BRAID_TRY(check_positive("rollout.max_response_length", rollout.max_response_length));
  BRAID_TRY(check_positive("rollout.temperature", rollout.temperature));
  if (rollout.top_p != 1 || rollout.top_k != 0 || rollout.min_p != 0)
    return invalid_input(
        "rollout.top_p, top_k and min_p cut the distribution, which training does not score; "
        "use 1, 0 and 0 (they are free in `braid generate`)");
  return ok_status();
}

Status check(const Config& config) {
  BRAID_TRY(check_choice("model.dtype", config.model.dtype, {"f32", "bf16"}));
  BRAID_TRY(
      check_choice("data.overlong", config.data.overlong, {"error", "drop", "truncate_left"}));
  BRAID_TRY(check_choice("train.on_nonfinite", config.train.on_nonfinite, {"stop", "skip"}));
  BRAID_TRY(check_choice("critic.init_from", config.critic.init_from,
                         {"", "policy", "reward_model", "random"}));
  BRAID_TRY(check_rollout(config.rollout));
  BRAID_TRY(check_optimizer("actor", config.optim.actor));
  BRAID_TRY(check_optimizer("critic", config.optim.critic));
  BRAID_TRY(check_optimizer("reward", config.optim.reward));
  BRAID_TRY(check_positive("train.total_steps", config.train.total_steps));
  BRAID_TRY(check_positive("train.minibatches", config.train.minibatches));
  BRAID_TRY(check_positive("train.epochs_per_rollout", config.train.epochs_per_rollout));
  BRAID_TRY(check_positive("train.micro_tokens", config.train.micro_tokens));
  return ok_status();
}

}  // namespace

Result<LoadedConfig> load_config(const ConfigSources& sources) {
  YamlNode tree;
  tree.kind = YamlNode::Kind::kMap;
  for (const auto& [name, text] : sources.files) {
    BRAID_ASSIGN(const YamlNode file, parse_yaml(text, name));
    merge_yaml(tree, file);
  }
  for (const std::string& item : sources.overrides) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      return invalid_input(cat("'", item, "' is not an override; write key.sub=value"));
    BRAID_TRY(set_yaml_path(tree, item.substr(0, equals), item.substr(equals + 1), "command line"));
  }
  if (sources.environment) BRAID_TRY(expand_variables(tree, sources.environment));
  LoadedConfig out;
  if (sources.algorithm_defaults) {
    const YamlNode* algorithm = tree.find("algorithm");
    const YamlNode* name = algorithm == nullptr ? nullptr : algorithm->find("name");
    out.config.algorithm =
        sources.algorithm_defaults(name == nullptr ? out.config.algorithm.name : name->scalar);
  }
  BRAID_TRY(OptionReader::read(tree, "", out.config));
  BRAID_TRY(check(out.config));
  out.resolved = OptionPrinter::print(out.config, &tree);
  return out;
}

Result<BatchArithmetic> batch_arithmetic(const Config& config) {
  const int64_t sequences = config.rollout.prompts_per_step * config.rollout.samples_per_prompt;
  const int64_t parts = config.train.minibatches;
  if (sequences % parts != 0) {
    int64_t below = parts, above = parts;
    while (sequences % below != 0) --below;
    while (above <= sequences && sequences % above != 0) ++above;
    return invalid_input(cat("train.minibatches: ", sequences,
                             " sequences (rollout.prompts_per_step x samples_per_prompt) do not "
                             "divide into ",
                             parts, " mini-batches; nearest valid values: ", below, " and ",
                             above));
  }
  BatchArithmetic out;
  out.sequences_per_step = sequences;
  out.sequences_per_minibatch = sequences / parts;
  out.optimizer_steps_per_step = parts * config.train.epochs_per_rollout;
  out.optimizer_steps = out.optimizer_steps_per_step * config.train.total_steps;
  return out;
}

std::string arithmetic_text(const Config& config, const BatchArithmetic& arithmetic) {
  return cat(config.rollout.prompts_per_step, " prompts x ", config.rollout.samples_per_prompt,
             " samples = ", arithmetic.sequences_per_step, " sequences -> ",
             config.train.minibatches, " mini-batches of ", arithmetic.sequences_per_minibatch,
             " x ", config.train.epochs_per_rollout,
             " epochs = ", arithmetic.optimizer_steps_per_step, " optimizer steps a step, ",
             arithmetic.optimizer_steps, " in all");
}

}  // namespace braid

#include "config/load.h"

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"
#include "config/algorithm_traits.h"
#include "config/binder.h"
#include "config/evaluates.h"
#include "config/origin.h"
#include "config/reference.h"
#include "config/stall_limit.h"

namespace braid::inline config {
namespace {

// Names of users-and-peers' groups that people also type, moved to ours before reading.
struct Alias {
  const char* written;
  const char* ours;
};
constexpr Alias kAliases[] = {
    {"policy.clip_low", "algorithm.clip_low"},
    {"policy.clip_high", "algorithm.clip_high"},
    {"policy.dual_clip", "algorithm.dual_clip"},
    {"policy.entropy_coef", "algorithm.entropy_coef"},
    {"policy.loss_agg", "algorithm.loss_agg"},
    {"policy.ratio_level", "algorithm.ratio_level"},
    {"policy.tis.cap", "algorithm.tis_cap"},
    {"policy.mask_truncated", "algorithm.mask_truncated"},
    {"policy.loss", "algorithm.loss"},
    {"critic.value_clip", "algorithm.value_clip"},
    {"critic.coef", "algorithm.critic_coef"},
    {"reward.clip", "reward_total.clip"},
    {"reward.missing_eos_penalty", "reward_total.missing_eos_penalty"},
    {"reward.overlong.buffer", "reward_total.overlong_buffer"},
    {"reward.overlong.penalty", "reward_total.overlong_penalty"},
};

const YamlNode* find_path(const YamlNode& root, const std::string& path) {
  const YamlNode* node = &root;
  for (const std::string& key : split(path, '.')) {
    node = node->find(key);
    if (node == nullptr) return nullptr;
  }
  return node;
}

// Removes the value at a path and the groups that it leaves empty.
void erase_path(YamlNode& node, const std::string& path) {
  const size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  YamlNode* child = node.find(key);
  if (dot != std::string::npos) {
    erase_path(*child, path.substr(dot + 1));
    if (!child->map.empty()) return;
  }
  node.map.erase(std::find_if(node.map.begin(), node.map.end(),
                              [&](const auto& entry) { return entry.first == key; }));
}

void put_path(YamlNode& root, const std::string& path, const YamlNode& value) {
  YamlNode* node = &root;
  for (const std::string& key : split(path, '.')) {
    node->kind = YamlNode::Kind::kMap;
    YamlNode* next = node->find(key);
    node = next != nullptr ? next : &node->map.emplace_back(key, YamlNode{}).second;
  }
  *node = value;
}

Status apply_aliases(YamlNode& tree) {
  for (const Alias& alias : kAliases) {
    const YamlNode* written = find_path(tree, alias.written);
    if (written == nullptr) continue;
    const YamlNode value = *written;
    if (const YamlNode* ours = find_path(tree, alias.ours))
      return invalid_input(cat(value.origin, ": ", alias.written, " is another name of ",
                               alias.ours, ", which is set at ", ours->origin,
                               "; write only one of them"));
    erase_path(tree, alias.written);
    put_path(tree, alias.ours, value);
  }
  return ok_status();
}

Status check_rollout(const Config& config) {
  const RolloutConfig& rollout = config.rollout;
  if (std::find(rollout.stop.begin(), rollout.stop.end(), "") != rollout.stop.end())
    return invalid_input(
        "rollout.stop: an empty string would end every response at once; remove it");
  if (rollout.min_response_length > rollout.max_response_length)
    return invalid_input(
        cat("rollout.min_response_length: ", rollout.min_response_length,
            " is more than rollout.max_response_length = ", rollout.max_response_length));
  const std::vector<std::pair<const char*, bool>> cuts = {
      {"rollout.top_p", rollout.top_p != 1},
      {"rollout.top_k", rollout.top_k != 0},
      {"rollout.min_p", rollout.min_p != 0},
      {"rollout.repetition_penalty", rollout.repetition_penalty != 1}};
  for (const auto& [key, cut] : cuts)
    if (cut)
      return invalid_input(cat(
          key,
          ": changes the distribution that is sampled from, but training scores with the whole "
          "one, "
          "so that no ratio of new to old policy would begin at 1; remove it (it is free in 'braid "
          "generate')"));
  if (rollout.min_response_length > 0 && config.algorithm.old_logprobs == "sampler")
    return invalid_input(
        "rollout.min_response_length: the sampler leaves out the end of sequence before it, so its "
        "log-probs are not those that training scores; set algorithm.old_logprobs: recompute");
  if (compares_groups(config.algorithm) && rollout.samples_per_prompt < 2)
    return invalid_input(
        cat("rollout.samples_per_prompt: ", rollout.samples_per_prompt,
            " sample of a prompt cannot be compared with others of its group (algorithm.name: ",
            config.algorithm.name, "); write at least 2, 8 is usual"));
  return ok_status();
}

// Responses that newer weights go on with.
Status check_carried(const Config& config) {
  const RolloutConfig& rollout = config.rollout;
  const AlgorithmOptions& algorithm = config.algorithm;
  if (rollout.in_flight == 1 || algorithm_traits(algorithm.name).given) return ok_status();
  const std::string where = "rollout.in_flight: ";
  if (!rollout.replay.empty())
    return invalid_input(where +
                         "responses that are read (rollout.replay) are those of their step, of "
                         "which none are left for the next; remove one of them");
  if (algorithm.dynamic_sampling)
    return invalid_input(where +
                         "a step that draws further prompts (algorithm.dynamic_sampling) generates "
                         "several times; set one of them off");
  if (algorithm.old_logprobs == "recompute" && !weighs_sampled(algorithm))
    return invalid_input(where +
                         "responses have tokens of older weights, and nothing corrects for the "
                         "difference; weigh tokens with algorithm.tis_cap (2 is usual) or "
                         "algorithm.icepop_high, or clip against the policy that sampled with "
                         "algorithm.old_logprobs: sampler");
  return ok_status();
}

Status check_eval(const Config& config) {
  const EvalConfig& eval = config.eval;
  const char* const key = eval.every_steps > 0 ? "eval.every_steps" : "eval.at_start";
  if (evaluates(config) && config.data.eval.empty())
    return invalid_input(cat(key, ": there is nothing to evaluate on; name a file as data.eval"));
  if (evaluates(config) && config.reward.empty())
    return invalid_input(cat(key,
                             ": an evaluation scores responses, and reward is empty; name at least "
                             "one reward"));
  if (eval.samples_per_prompt > 1 && eval.temperature == 0)
    return invalid_input(
        "eval.samples_per_prompt: greedy samples of a prompt are all the same; set "
        "eval.temperature above 0, or 1 sample");
  return ok_status();
}

Status check_optimizer(const char* role, const OptimizerConfig& optim) {
  if (optim.betas.size() == 2) return ok_status();
  return invalid_input(cat("optim.", role, ".betas: two numbers are needed, such as [0.9, 0.999]"));
}

Status check_device(const std::string& device) {
  int64_t index = 0;
  const bool numbered = device.rfind("cuda:", 0) == 0 && parse_int(device.substr(5), &index);
  for (const char* known : {"cpu", "cuda", "emulated"})
    if (device == known) return ok_status();
  if (numbered && index >= 0) return ok_status();
  return invalid_input(cat("device: must be cpu, cuda, cuda:N or emulated, not '", device, "'"));
}

// The name goes into paths, tables and messages of one line.
Status check_run_name(const std::string& name) {
  const bool plain = std::none_of(name.begin(), name.end(),
                                  [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; });
  if (plain) return ok_status();
  return invalid_input(cat("run.name: '", excerpt(name),
                           "' has a line break or another control character; write a name of one "
                           "line"));
}

Status check_reference(const Config& config) {
  const ReferenceConfig& reference = config.reference;
  if (reference.ema > 0 && reference.sync_every == 0)
    return invalid_input(
        "reference.ema: the reference never moves; set reference.sync_every to the steps after "
        "which it does (1: each), or remove it");
  if (reference.sync_every > 0 && config.lora.rank > 0)
    return invalid_input(
        "reference.sync_every: with lora.rank the reference is the base without adapters, which "
        "has no weights that could become the policy's; remove one of them");
  return ok_status();
}

// A trunk that is the policy's has no weights, size or time of its own.
Status check_trunk(const CriticConfig& critic) {
  const std::string beside = !critic.path.empty()        ? "path"
                             : !critic.size.empty()      ? "size"
                             : !critic.init_from.empty() ? "init_from"
                             : critic.warmup_steps > 0   ? "warmup_steps"
                                                         : "";
  if (!critic.shared_trunk || beside.empty()) return ok_status();
  return invalid_input(cat("critic.", beside, ": with critic.shared_trunk the critic is a head of ",
                           "the policy's model and is trained with it; remove one of them"));
}

// Values that are right one by one but not together; messages begin with a key.
Status check_together(const Config& config) {
  BRAID_TRY(check_run_name(config.run.name));
  BRAID_TRY(check_device(config.device));
  const RuntimeConfig& emulated = config.runtime;
  const std::string stated = emulated.jitter > 0        ? "jitter"
                             : emulated.time_scale > 0  ? "time_scale"
                             : emulated.fault != "none" ? "fault"
                                                        : "";
  if (!stated.empty() && config.device != "emulated")
    return invalid_input(
        cat("runtime.", stated, ": belongs to device=emulated, device is ", config.device));
  BRAID_TRY(check_stall_limit(config));
  BRAID_TRY(check_rollout(config));
  BRAID_TRY(check_carried(config));
  BRAID_TRY(check_eval(config));
  BRAID_TRY(check_reference(config));
  BRAID_TRY(check_trunk(config.critic));
  BRAID_TRY(check_optimizer("actor", config.optim.actor));
  BRAID_TRY(check_optimizer("critic", config.optim.critic));
  BRAID_TRY(check_optimizer("reward", config.optim.reward));
  if (config.data.train == "-" && config.data.eval == "-")
    return invalid_input(
        "data.eval: standard input is data.train already and cannot be read twice; name a file");
  if (config.data.prompt_template.find("{prompt}") == std::string::npos &&
      !config.data.prompt_template.empty())
    return invalid_input("data.prompt_template: must contain {prompt}, where the prompt goes");
  if (config.reward_total.overlong_buffer >= config.rollout.max_response_length)
    return invalid_input(
        cat("reward_total.overlong_buffer: must be less than "
            "rollout.max_response_length = ",
            config.rollout.max_response_length));
  return ok_status();
}

// What keys are without having been written: the structs', changed by the name of the algorithm.
Config defaults_of(const YamlNode& tree) {
  Config out;
  int64_t length = out.rollout.max_response_length;
  if (const YamlNode* written = find_path(tree, "rollout.max_response_length"))
    parse_int(written->scalar, &length);  // a wrong one is refused where it is read
  if (const YamlNode* name = find_path(tree, "algorithm.name"))
    set_name_defaults(name->scalar, length, &out);
  return out;
}

// Says of values that nobody wrote where the name of the algorithm decides them.
void mark_named(const YamlNode& named, const YamlNode& plain, const std::string& origin,
                YamlNode* resolved) {
  for (auto& [key, value] : resolved->map) {
    const YamlNode *ours = named.find(key), *usual = plain.find(key);
    if (ours == nullptr || usual == nullptr) continue;
    mark_named(*ours, *usual, origin, &value);
    if (ours->scalar != usual->scalar && value.origin == kDefaultOrigin) value.origin = origin;
  }
}

// train.total_episodes in steps; only one of both may be given.
Status apply_episodes(const YamlNode& tree, Config& config) {
  const int64_t episodes = config.train.total_episodes;
  if (episodes == 0) return ok_status();
  const int64_t sequences = config.rollout.prompts_per_step * config.rollout.samples_per_prompt;
  const bool both = find_path(tree, "train.total_steps") != nullptr;
  if (both && config.train.total_steps * sequences != episodes)
    return invalid_input(
        "train.total_episodes: train.total_steps is given too and means another number; write one "
        "of them");
  if (episodes % sequences != 0)
    return invalid_input(cat("train.total_episodes: ", episodes,
                             " is no multiple of the sequences of a step (rollout.prompts_per_step "
                             "x samples_per_prompt = ",
                             sequences, "); nearest valid values: ",
                             std::max(episodes / sequences, int64_t{1}) * sequences, " and ",
                             (episodes / sequences + 1) * sequences));
  config.train.total_steps = episodes / sequences;
  return ok_status();
}

// The resolved configuration is saved with the run; a token that came from the environment is
// written as ${NAME} there.
void hide_tokens(const YamlNode& unexpanded, YamlNode& resolved) {
  const YamlNode* written = unexpanded.find("reward");
  YamlNode* shown = resolved.find("reward");
  if (written == nullptr || shown == nullptr) return;
  for (size_t i = 0; i < std::min(written->list.size(), shown->list.size()); ++i)
    if (const YamlNode* token = written->list[i].find("auth_token"))
      *shown->list[i].find("auth_token") = *token;
}

// What the mini-batches of a step are cut of.
struct StepUnits {
  int64_t of_prompt = 1;  // or of a row of given responses
  const char* name = "sequences (rollout.prompts_per_step x samples_per_prompt)";
};

StepUnits step_units(const Config& config) {
  const AlgorithmTraits traits = algorithm_traits(config.algorithm.name);
  const bool single = config.algorithm.name == "rm" && config.algorithm.reward_loss != "pairwise";
  if (traits.pairs && traits.given && !single) return {1, "pairs (rollout.prompts_per_step)"};
  if (traits.given) return {1, "responses (rollout.prompts_per_step)"};
  if (traits.pairs) return {1, "prompts (rollout.prompts_per_step), whose responses meet,"};
  return {config.rollout.samples_per_prompt};
}

bool is_given(const Config& config) { return algorithm_traits(config.algorithm.name).given; }

// Responses that a step learns from for each prompt or row of the data.
int64_t samples_of_prompt(const Config& config) {
  if (!is_given(config)) return config.rollout.samples_per_prompt;
  return std::string(step_units(config).name).starts_with("pairs") ? 2 : 1;
}

// The number of prompts near the given one whose units divide into the mini-batches.
int64_t nearest_prompts(const Config& config) {
  const int64_t each = step_units(config).of_prompt, parts = config.train.minibatches;
  for (int64_t distance = 0;; ++distance)
    for (const int64_t prompts :
         {config.rollout.prompts_per_step - distance, config.rollout.prompts_per_step + distance})
      if (prompts > 0 && prompts * each % parts == 0) return prompts;
}

}  // namespace

namespace {

// Files and overrides, as they were written.
Result<YamlNode> written_tree(const ConfigSources& sources) {
  YamlNode tree;
  tree.kind = YamlNode::Kind::kMap;
  for (const auto& [name, text] : sources.files) {
    BRAID_ASSIGN(const YamlNode file, parse_yaml(text, name));
    if (file.kind != YamlNode::Kind::kMap)
      return invalid_input(
          cat(file.origin, ": a configuration must be a group of keys, such as model: {size: X}"));
    merge_yaml(tree, file);
  }
  for (const std::string& item : sources.overrides) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      return invalid_input(cat("'", item, "' is not an override; write key.sub=value"));
    BRAID_TRY(set_yaml_path(tree, item.substr(0, equals), item.substr(equals + 1), "command line"));
  }
  return tree;
}

Result<YamlNode> checked_tree(YamlNode tree, const ConfigSources& sources) {
  if (sources.environment) BRAID_TRY(expand_variables(tree, sources.environment));
  BRAID_TRY(apply_aliases(tree));
  BRAID_TRY(check_option_keys(tree, sources.algorithms));
  return tree;
}

}  // namespace

Result<YamlNode> config_tree(const ConfigSources& sources) {
  BRAID_ASSIGN(YamlNode written, written_tree(sources));
  return checked_tree(std::move(written), sources);
}

Result<LoadedConfig> load_config(const ConfigSources& sources) {
  BRAID_ASSIGN(const YamlNode written, written_tree(sources));
  BRAID_ASSIGN(const YamlNode tree, checked_tree(written, sources));
  LoadedConfig out;
  Config plain, named = defaults_of(tree);
  out.config = named;
  BRAID_TRY(OptionReader::read(tree, "", out.config));
  BRAID_TRY(apply_episodes(tree, out.config));
  BRAID_TRY(at_place(tree, check_together(out.config)));
  out.resolved = OptionPrinter::print(out.config, &tree);
  mark_named(OptionPrinter::print(named, nullptr), OptionPrinter::print(plain, nullptr),
             cat(kNamedDefaultOrigin, out.config.algorithm.name), &out.resolved);
  hide_tokens(written, out.resolved);
  return out;
}

Status at_place(const YamlNode& tree, const Status& status) {
  if (status.ok()) return status;
  const std::string& message = status.message();
  const YamlNode* node = find_path(tree, message.substr(0, message.find(':')));
  return node == nullptr || !is_written(*node) ? status : status.at(node->origin);
}

Result<BatchArithmetic> batch_arithmetic(const Config& config) {
  const int64_t sequences = config.rollout.prompts_per_step * samples_of_prompt(config);
  if (sequences > static_cast<int64_t>(kMostCount))
    return invalid_input(cat("rollout.prompts_per_step: ", config.rollout.prompts_per_step,
                             " x samples_per_prompt = ", sequences,
                             " sequences of a step; at most ", static_cast<int64_t>(kMostCount),
                             " are supported"));
  const StepUnits unit = step_units(config);
  const int64_t units = config.rollout.prompts_per_step * unit.of_prompt;
  const int64_t parts = config.train.minibatches;
  if (parts > units || units % parts != 0) {
    int64_t below = std::min(parts, units), above = parts;
    while (units % below != 0) --below;
    while (above <= units && units % above != 0) ++above;
    return invalid_input(cat("train.minibatches: ", units, " ", unit.name, " do not divide into ",
                             parts, " mini-batches; nearest valid values: ", below,
                             above <= units ? cat(" and ", above) : "",
                             ", or rollout.prompts_per_step = ", nearest_prompts(config)));
  }
  BatchArithmetic out;
  out.sequences_per_step = sequences;
  out.sequences_per_minibatch = sequences / parts;
  out.optimizer_steps_per_step = parts * config.train.epochs_per_rollout;
  if (__builtin_mul_overflow(out.optimizer_steps_per_step, config.train.total_steps,
                             &out.optimizer_steps))
    return invalid_input(cat("train.total_steps: ", config.train.total_steps, " steps of ",
                             out.optimizer_steps_per_step,
                             " optimizer steps each are more than a counter holds"));
  return out;
}

std::string arithmetic_text(const Config& config, const BatchArithmetic& arithmetic) {
  const bool pairs = samples_of_prompt(config) == 2 && is_given(config);
  const std::string step = pairs ? cat(" pairs = ", arithmetic.sequences_per_step, " responses")
                                 : cat(" prompts x ", samples_of_prompt(config),
                                       " samples = ", arithmetic.sequences_per_step, " sequences");
  return cat(config.rollout.prompts_per_step, step, " -> ", config.train.minibatches,
             " mini-batches of ", arithmetic.sequences_per_minibatch, " x ",
             config.train.epochs_per_rollout, " epochs = ", arithmetic.optimizer_steps_per_step,
             " optimizer steps a step, ", arithmetic.optimizer_steps, " in all");
}

std::string algorithm_text(const AlgorithmOptions& algorithm) {
  if (algorithm.name == "sft") return algorithm.name;
  if (algorithm.name == "rm") return cat("rm: loss ", algorithm.reward_loss);
  if (algorithm.name == "kto")
    return cat("kto: beta ", algorithm.beta, ", weights ", algorithm.wanted_weight, "/",
               algorithm.unwanted_weight);
  if (algorithm.name == "orpo") return cat("orpo: beta ", algorithm.beta);
  if (algorithm.name == "dpo" || algorithm.name == "online_dpo")
    return cat(
        algorithm.name, ": beta ", algorithm.beta, ", loss ", algorithm.preference_loss,
        algorithm.label_smoothing > 0 ? cat(", label smoothing ", algorithm.label_smoothing) : "");
  const KlOptions& kl = algorithm.kl;
  if (algorithm.name == "distill")
    return cat("distill: ", kl.coef, " x log(teacher / policy) of a token is its reward, gamma ",
               algorithm.gamma, ", clip ", algorithm.clip_low, "/", algorithm.clip_high,
               ", losses averaged as ", algorithm.loss_agg);
  const std::string penalty = kl.coef == 0 ? "reference model not loaded (algorithm.kl.coef = 0)"
                              : kl.in == "own" ? "KL left to your functions"
                                               : cat("KL ", kl.coef, " (", kl.estimator, ", ",
                                                     kl.controller, ") in the ", kl.in);
  const std::string clip = cat(algorithm.loss.empty() ? "" : cat("loss of ", algorithm.loss, ", "),
                               "clip ", algorithm.clip_low, "/", algorithm.clip_high);
  const std::string end = cat("losses averaged as ", algorithm.loss_agg, ", ", penalty);
  if (!algorithm.advantages.empty())
    return cat(algorithm.name, ": advantages of ", algorithm.advantages, ", ", clip, ", ", end);
  const bool discounts = algorithm_traits(algorithm.name).discounts;
  return cat(algorithm.name, ": ", discounts ? cat("gamma ", algorithm.gamma, ", ") : "",
             algorithm.name == "ppo" ? cat("lambda ", algorithm.lam, ", ") : "", clip,
             ", advantages normalized by ", algorithm.normalize_advantages, ", ", end);
}

}  // namespace braid::inline config

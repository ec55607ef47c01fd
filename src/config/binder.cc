#include "config/binder.h"

namespace braid {
namespace {

// Keys that users of other frameworks type, ours, and what to watch for.
struct ForeignKey {
  const char* theirs;
  const char* ours;
};
constexpr ForeignKey kForeignKeys[] = {
    {"train_batch_size", "rollout.prompts_per_step (counts prompts)"},
    {"num_prompts_per_step", "rollout.prompts_per_step (counts prompts)"},
    {"rollout_batch_size", "rollout.prompts_per_step (counts prompts)"},
    {"per_device_train_batch_size",
     "rollout.prompts_per_step (counts prompts; TRL counts completions: divide by the samples per "
     "prompt)"},
    {"n", "rollout.samples_per_prompt"},
    {"num_generations", "rollout.samples_per_prompt"},
    {"n_samples_per_prompt", "rollout.samples_per_prompt"},
    {"group_size", "rollout.samples_per_prompt"},
    {"max_completion_length", "rollout.max_response_length (tokens)"},
    {"max_new_tokens", "rollout.max_response_length (tokens)"},
    {"response_length", "rollout.max_response_length (tokens)"},
    {"ppo_epochs", "train.epochs_per_rollout"},
    {"num_ppo_epochs", "train.epochs_per_rollout"},
    {"num_iterations", "train.epochs_per_rollout"},
    {"num_mini_batches", "train.minibatches"},
    {"ppo_mini_batch_size",
     "train.minibatches (the number of optimizer steps per epoch, not their size)"},
    {"ppo_max_token_len_per_gpu", "train.micro_tokens (tokens)"},
    {"max_tokens_per_mb", "train.micro_tokens (tokens)"},
    {"learning_rate", "optim.actor.lr"},
    {"max_grad_norm", "optim.actor.max_grad_norm"},
    {"cliprange", "algorithm.clip_low and algorithm.clip_high"},
    {"clip_ratio", "algorithm.clip_low and algorithm.clip_high"},
    {"epsilon", "algorithm.clip_low and algorithm.clip_high"},
    {"beta", "algorithm.kl.coef"},
    {"kl_coef", "algorithm.kl.coef"},
    {"kl_loss_coef", "algorithm.kl.coef with algorithm.kl.in: loss"},
    {"adv_estimator", "algorithm.name"},
    {"lambd", "algorithm.lam"},
    {"cliprange_value", "algorithm.value_clip"},
    {"output_dir", "run.dir and run.name"},
    {"actor_rollout_ref", "model, rollout, optim.actor and train"},
};

Status wrong_type(const YamlNode& node, const std::string& key, const char* expected) {
  return invalid_input(
      cat(node.origin, ": ", key, " must be ", expected, ", not '", node.scalar, "'"));
}

bool plain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

YamlNode leaf(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.scalar = text;
  return node;
}

}  // namespace

Status read_scalar(const YamlNode& node, const std::string& key, std::string* out) {
  if (node.kind == YamlNode::Kind::kMap || node.kind == YamlNode::Kind::kList)
    return wrong_type(node, key, "text");
  *out = node.scalar == "null" && !node.quoted ? "" : node.scalar;
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, double* out) {
  if (!plain(node) || !parse_double(node.scalar, out)) return wrong_type(node, key, "a number");
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, int64_t* out) {
  if (!plain(node) || !parse_int(node.scalar, out))
    return wrong_type(node, key, "a whole number (decimal, no leading zero)");
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, bool* out) {
  if (!plain(node) || !parse_bool(node.scalar, out)) return wrong_type(node, key, "true or false");
  return ok_status();
}

YamlNode scalar_node(const std::string& value) {
  YamlNode node = leaf(value);
  double number = 0;
  node.quoted =
      value.empty() || value == "true" || value == "false" || parse_double(value, &number);
  return node;
}
YamlNode scalar_node(double value) { return leaf(format_double(value)); }
YamlNode scalar_node(int64_t value) { return leaf(cat(value)); }
YamlNode scalar_node(bool value) { return leaf(value ? "true" : "false"); }

Status unknown_key(const YamlNode& node, const std::string& path,
                   const std::vector<std::string>& known) {
  const std::string last = split(path, '.').back();
  for (const ForeignKey& entry : kForeignKeys)
    if (last == entry.theirs)
      return invalid_input(
          cat(node.origin, ": '", path, "' is a key of another framework; here it is ", entry.ours,
              node.kind == YamlNode::Kind::kScalar ? cat(" (you wrote ", node.scalar, ")") : ""));
  return invalid_input(cat(node.origin, ": unknown key '", path, "'", did_you_mean(last, known),
                           "; keys here: ", join(known, ", ")));
}

}  // namespace braid

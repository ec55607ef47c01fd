#include "session/check_models.h"

#include <algorithm>

#include "base/text.h"
#include "data/tokenizer/difference.h"
#include "foreign/keys/names.h"
#include "host/file.h"
#include "nn/model.h"
#include "program/tensor_map.h"
#include "reward/reward.h"
#include "session/session.h"
#include "weights/load_models.h"

namespace braid::inline session {
namespace {

std::string config_file(const Origin& origin) {
  return origin.folder.empty() ? origin.config_path : join_path(origin.folder, "config.json");
}

Result<ModelSpec> spec_of(const Origin& origin) {
  const std::string file = config_file(origin);
  if (!origin.folder.empty() && !is_folder(origin.folder))
    return not_found(cat(origin.folder, " is not a model folder"));
  BRAID_ASSIGN(const std::string text, read_file(file));
  return parse_model_spec(text, file);
}

Status check_role(const Config& config, const RoleSpec& role, const ModelOptions& options) {
  BRAID_ASSIGN(const Origin origin, role_origin(config, role.role.value));
  const std::string key = origin_key(config, role.role.value);
  if (!origin.folder.empty() && is_adapter_folder(origin.folder))
    return role.trained ? invalid_input(cat(key, ": ", origin.folder,
                                            " holds adapters only; train from the merged export "
                                            "(lora.export_as: merged) or from the base"))
                        : ok_status();
  BRAID_ASSIGN(const ModelSpec spec, spec_of(origin).at(key));
  if (spec.scalar_head && !role.scalar_head)
    return invalid_input(cat(key, ": ", origin.folder, " has a scalar head; a ", role.role,
                             " needs a language model"));
  if (!role.trained || options.lora.rank == 0) return ok_status();
  if (origin.folder.empty())
    return invalid_input("lora.rank: adapters need trained weights below them, these are random");
  return check_model_options(spec, options);
}

Status check_reward_models(const std::vector<RewardConfig>& rewards) {
  for (const RewardConfig& reward : rewards) {
    if (reward.type != "model" || is_adapter_folder(reward.path)) continue;
    const std::string place = cat("reward '", reward_name(reward), "'");
    BRAID_ASSIGN(const ModelSpec spec, spec_of({reward.path, ""}).at(place));
    if (!spec.scalar_head)
      return invalid_input(cat(place, ": ", reward.path,
                               " has no scalar head (score.weight); braid rm trains a reward "
                               "model"));
  }
  return ok_status();
}

// Generation stops at these.
Status check_ends(const Origin& origin, const ModelSpec& spec) {
  for (const int64_t id : spec.eos_ids)
    if (id < 0 || id >= spec.vocab)
      return invalid_input(cat(config_file(origin), ": eos_token_id ", id,
                               " is outside of the model's vocabulary of ", spec.vocab,
                               " tokens, so no response could end with it"));
  return ok_status();
}

void note_ends(const Config& config, const ModelSpec& spec, std::vector<std::string>* notes) {
  const bool ends = !spec.eos_ids.empty() && !config.rollout.ignore_eos;
  if (!ends && config.rollout.stop.empty())
    notes->push_back(cat(
        "rollout.stop: ",
        config.rollout.ignore_eos ? "rollout.ignore_eos is on" : "the model names no eos_token_id",
        " and there are no stop strings, so every response goes on to "
        "rollout.max_response_length and counts as truncated"));
}

Status check_tokenizer(const Config& config, const ModelSpec& spec, const Tokenizer& tokenizer,
                       std::vector<std::string>* notes) {
  const char* key = config.tokenizer.path.empty() ? "model.path" : "tokenizer.path";
  if (tokenizer.vocab_size() > spec.vocab)
    return invalid_input(cat(key, ": the tokenizer has ids up to ", tokenizer.vocab_size() - 1,
                             ", the model's vocabulary ends at ", spec.vocab - 1,
                             "; it belongs to another model"));
  const auto eos = tokenizer.eos_id();
  const bool known =
      !eos || spec.eos_ids.empty() ||
      std::find(spec.eos_ids.begin(), spec.eos_ids.end(), *eos) != spec.eos_ids.end();
  if (!known)
    notes->push_back(
        cat(key, ": the tokenizer ends texts with token ", *eos, " ('", tokenizer.id_to_token(*eos),
            "'), which is not among the model's eos_token_id; is it another model's?"));
  const std::string own = join_path(config.model.path, "tokenizer.json");
  if (config.tokenizer.path.empty() || config.model.path.empty() || !path_exists(own))
    return ok_status();
  BRAID_ASSIGN(const Tokenizer models, load_tokenizer(config.model.path));
  const std::string meaning = other_meaning(tokenizer, models);
  if (!meaning.empty())
    notes->push_back(cat("tokenizer.path: ", meaning,
                         ", in the tokenizer of model.path; is it another model's?"));
  return ok_status();
}

// A role that follows another takes its weights, number by number.
Status check_follower(const Config& config, const Graph& graph, const RoleSpec& role) {
  if (!changes(graph, role.role) || role.weights_from.value.empty()) return ok_status();
  const std::string key = origin_key(config, role.role.value);
  BRAID_ASSIGN(const Origin own, role_origin(config, role.role.value));
  BRAID_ASSIGN(const Origin followed, role_origin(config, role.weights_from.value));
  if (is_adapter_folder(own.folder))
    return invalid_input(cat(
        key, ": ", own.folder, " holds adapters over a base, which cannot take ",
        "the weights of the ", role.weights_from, " (reference.sync_every); name a merged model"));
  BRAID_ASSIGN(const ModelSpec mine, spec_of(own).at(key));
  BRAID_ASSIGN(const ModelSpec theirs, spec_of(followed));
  if (tensor_map(mine) == tensor_map(theirs)) return ok_status();
  return invalid_input(cat(key, ": its tensors are not those of the ", role.weights_from,
                           ", whose weights the ", role.role,
                           " is to take (reference.sync_every); name a model of the same sizes"));
}

}  // namespace

std::vector<std::string> trainable_algorithms() {
  std::vector<std::string> trained;
  for (const std::string& name : algorithm_names()) {
    const auto graph = make_graph(default_options(name));
    if (graph.ok() && check_functions(*graph).ok()) trained.push_back(name);
  }
  return trained;
}

Status check_trainable(const Config& config) {
  const std::string& name = config.algorithm.name;
  const auto has = [](const std::vector<std::string>& names, const std::string& wanted) {
    return std::find(names.begin(), names.end(), wanted) != names.end();
  };
  const std::vector<std::string> trained = trainable_algorithms();
  if (has(trained, name)) return ok_status();
  const std::string known = cat("trained are ", join(trained, ", "));
  if (has(algorithm_names(), name))
    return invalid_input(
        cat("algorithm.name: ", name, " can be planned and simulated, but not trained; ", known));
  std::vector<std::string> planned;
  for (const std::string& other : algorithm_names())
    if (!has(trained, other)) planned.push_back(other);
  return invalid_input(
      cat("algorithm.name: unknown algorithm '", name, "'", algorithm_hint(name, trained), "; ",
          known, planned.empty() ? "" : cat("; 'braid plan' knows ", join(planned, ", "), " too")));
}

Status check_models(const Config& config, const Graph& graph,
                    const std::optional<Tokenizer>& tokenizer, std::vector<std::string>* notes) {
  BRAID_ASSIGN(const ModelOptions options, model_options(config));
  for (const RoleSpec& role : graph.roles)
    if (!is_scorer(role)) BRAID_TRY(check_role(config, role, options).at(cat("role ", role.role)));
  for (const RoleSpec& role : graph.roles)
    BRAID_TRY(check_follower(config, graph, role).at(cat("role ", role.role)));
  if (generates(graph)) BRAID_TRY(check_reward_models(config.reward));
  BRAID_ASSIGN(const Origin origin, role_origin(config, "actor"));
  if (!origin.folder.empty() && is_adapter_folder(origin.folder)) return ok_status();
  BRAID_ASSIGN(const ModelSpec spec, spec_of(origin).at(origin_key(config, "actor")));
  const int64_t length = config.data.max_prompt_length + config.rollout.max_response_length;
  if (generates(graph) && spec.max_positions > 0 && length > spec.max_positions)
    notes->push_back(cat("rollout.max_response_length: the model has ", spec.max_positions,
                         " positions, less than data.max_prompt_length + "
                         "rollout.max_response_length = ",
                         length, "; longer samples will fail"));
  if (generates(graph)) {
    BRAID_TRY(check_ends(origin, spec));
    note_ends(config, spec, notes);
  }
  return tokenizer ? check_tokenizer(config, spec, *tokenizer, notes) : ok_status();
}

}  // namespace braid::inline session

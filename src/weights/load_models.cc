#include "weights/load_models.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "device/device.h"
#include "host/file.h"
#include "inputs/reward_reader.h"
#include "models/family.h"
#include "nn/model_parts.h"
#include "nn/model_share.h"
#include "plan/make_problem.h"
#include "reward/reward.h"
#include "weights/check_tokenizers.h"

namespace braid::inline weights {
namespace {

Result<Origin> random_origin(const Config& config) {
  if (!config.model.config.empty()) return Origin{"", config.model.config};
  if (!config.model.path.empty()) return Origin{"", join_path(config.model.path, "config.json")};
  return invalid_input(
      "model.path: no model given; name a Hugging Face folder, or a config.json as model.config");
}

Result<Origin> policy_origin(const Config& config) {
  if (!config.model.path.empty()) return Origin{config.model.path, ""};
  return random_origin(config);
}

// The model of the list of rewards; `lacking` is the error where it has none.
Result<Origin> scorer_origin(const Config& config, const char* lacking,
                             const std::string& role = "reward") {
  if (const RewardConfig* reward = reward_model(config, role)) return Origin{reward->path, ""};
  return invalid_input(lacking);
}

Result<Origin> critic_origin(const Config& config) {
  const std::string& from = config.critic.init_from;
  if (!config.critic.path.empty()) {
    if (from.empty()) return Origin{config.critic.path, ""};
    return invalid_input(cat("critic.init_from: ", from, " stands beside critic.path: ",
                             config.critic.path, "; leave one of them out"));
  }
  if (from.empty() || from == "policy") return policy_origin(config);
  if (from == "random") return random_origin(config);
  if (from != "reward_model")
    return invalid_input(cat("critic.init_from: unknown value '", from,
                             "'; allowed: policy | reward_model | random"));
  return scorer_origin(
      config,
      "critic.init_from: reward_model needs a reward of type model; the list `reward` has none");
}

}  // namespace

std::string Origin::source_folder() const {
  return folder.empty() ? parent_folder(config_path) : folder;
}

std::string Origin::text() const {
  return folder.empty() ? "random weights" : cat("from ", folder);
}

Result<ModelOptions> model_options(const Config& config) {
  ModelOptions options;
  BRAID_ASSIGN(options.device, parse_device(config.device, "device"));
  options.dtype = config.model.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  if (config.train.recompute) options.kept = KeptActivations::kInputs;
  options.lora = {config.lora.rank, config.lora.alpha, config.lora.targets, config.lora.dropout};
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

std::string origin_key(const Config& config, const std::string& role) {
  if (role == "critic" && !config.critic.path.empty()) return "critic.path";
  if (role == "reference" && !config.reference.path.empty()) return "reference.path";
  if (role == "teacher") return "teacher.path";
  return config.model.path.empty() ? "model.config" : "model.path";
}

Result<Origin> role_origin(const Config& config, const std::string& role) {
  if (role == "critic") return critic_origin(config);
  if (role == "reference" && !config.reference.path.empty())
    return Origin{config.reference.path, ""};
  if (role == "teacher" && config.teacher.path.empty())
    return invalid_input("teacher.path: no teacher given; name a Hugging Face folder");
  if (role == "teacher") return Origin{config.teacher.path, ""};
  return policy_origin(config);
}

Result<Origin> role_origin(const Config& config, const RoleSpec& role) {
  if (!is_scorer(role)) return role_origin(config, role.role.value);
  return scorer_origin(config,
                       "reward: the graph scores with a model, the list has none of type model",
                       role.role.value);
}

Result<ModelSpec> origin_spec(const Origin& origin, bool scalar_head, bool value_head) {
  const std::string path =
      origin.folder.empty() ? origin.config_path : join_path(origin.folder, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(path));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(text, path));
  if (scalar_head && !spec.scalar_head) spec.architecture = family_of(spec).score_architecture;
  spec.scalar_head = scalar_head;
  spec.value_head = value_head;
  return spec;
}

Result<std::unique_ptr<Model>> load_weights(const Origin& origin, const LoadOptions& options) {
  if (!origin.folder.empty()) return load_model(origin.folder, options);
  BRAID_ASSIGN(const ModelSpec spec, origin_spec(origin, options.scalar_head, options.value_head));
  return make_model(spec, options.model, options.placed);
}

Result<std::unique_ptr<Model>> load_policy(const Config& config) {
  BRAID_ASSIGN(ModelOptions options, model_options(config));
  options.lora.rank = 0;
  BRAID_ASSIGN(const Origin origin, role_origin(config, "actor"));
  BRAID_ASSIGN(std::unique_ptr<Model> model, load_weights(origin, {options, false}));
  if (model->spec().scalar_head)
    return invalid_input(cat(origin.source_folder(), ": ", model->spec().architecture,
                             " has a scalar head; a policy needs a language model"));
  return model;
}

const Model* find_base(const Roles& roles, const std::string& folder) {
  for (const auto& [name, state] : roles) {
    const bool adapted = state.optimizer && !state.alone && state.model->options().lora.rank > 0;
    if (adapted && !folder.empty() && state.source_folder == folder) return state.model.get();
  }
  return nullptr;
}

bool offloads(const Config& config) { return config.train.offload != "off"; }

Result<std::unique_ptr<Model>> frozen(std::unique_ptr<Model> model, const Config& config) {
  if (!offloads(config)) return model;
  return offload_model(*model, "");
}

Status check_vocabulary(const Roles& roles, const ModelSpec& spec) {
  const auto actor = roles.find("actor");
  if (actor == roles.end() || spec.vocab >= actor->second.model->spec().vocab) return ok_status();
  return invalid_input(cat("its vocabulary of ", spec.vocab, " is smaller than the actor's of ",
                           actor->second.model->spec().vocab, "; the roles share a tokenizer"));
}

void log_role(const std::string& name, const Model& model, const std::string& origin) {
  int64_t all = 0, trained = 0;
  for (const auto& item : model.parameters()) all += item.second.numel();
  for (const auto& item : model.trainable_parameters()) trained += item.second.numel();
  const bool part = trained > 0 && trained < all;
  log_info(cat(name, ": ", origin, ", ", all, " parameters", is_part(model) ? " on this rank" : "",
               part ? cat(", ", trained, " of them trained") : ""));
}

namespace {

// Whether a reward model has a tokenizer of its own: then it may have fewer tokens than the actor.
Result<bool> reads_texts(const std::string& path, const Config& config) {
  BRAID_ASSIGN(const std::optional<Tokenizer> tokenizer, configured_tokenizer(config));
  RewardConfig reward;
  reward.path = path;
  BRAID_ASSIGN(const auto reader, RewardReader::load(reward, tokenizer, ""));
  return reader.has_value();
}

}  // namespace

Result<std::unique_ptr<Model>> load_reward_model(const std::string& path, const Config& config,
                                                 const Roles& roles, const LoadOptions& options,
                                                 bool alone) {
  const Model* base = alone || is_part(options.model) ? nullptr : find_base(roles, path);
  std::unique_ptr<Model> model;
  const bool whole = base != nullptr && !is_part(*base);
  if (whole && base->spec().scalar_head && !is_adapter_folder(path)) {
    BRAID_ASSIGN(model, make_role(*base, {options.model, true}));
  } else {
    BRAID_ASSIGN(model, load_model(path, options));
    if (!alone) {
      BRAID_ASSIGN(model, frozen(std::move(model), config));
    }
  }
  if (!model->spec().scalar_head)
    return invalid_input(cat(path, ": ", model->spec().architecture,
                             " has no scalar head (score.weight); braid rm trains a reward model"));
  const Status enough = check_vocabulary(roles, model->spec()).at(path);
  if (enough.ok()) return model;
  BRAID_ASSIGN(const bool texts, reads_texts(path, config));
  return texts ? Result<std::unique_ptr<Model>>(std::move(model)) : enough;
}

Result<RewardModels> load_reward_models(const Config& config, const Roles& roles) {
  BRAID_ASSIGN(ModelOptions options, model_options(config));
  options.lora.rank = 0;
  RewardModels models;
  std::map<std::string, Model*> loaded;  // by folder
  for (const RewardConfig& reward : config.reward) {
    std::unique_ptr<Model>& model = models.emplace_back();
    if (reward.type != "model") continue;
    if (loaded.count(reward.path) > 0) {
      model = base_view(*loaded[reward.path]);
      continue;
    }
    const std::string name = cat("reward ", reward_name(reward));
    BRAID_ASSIGN(model,
                 load_reward_model(reward.path, config, roles, {options, false}, false).at(name));
    loaded[reward.path] = model.get();
    log_role(name, *model, cat("from ", reward.path));
  }
  return models;
}

}  // namespace braid::inline weights

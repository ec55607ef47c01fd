// Building a session: models, data and rewards from the configuration.
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "dataflow/model_family.h"
#include "host/file.h"
#include "nn/model_share.h"
#include "runtime/run_data.h"
#include "runtime/session.h"

namespace braid {
namespace {

Result<at::Device> parse_device(const std::string& text) {
  if (text == "cpu") return at::Device(at::kCPU);
  if (text == "cuda") return at::Device(at::kCUDA, 0);
  int64_t index = 0;
  if (text.rfind("cuda:", 0) == 0 && parse_int(text.substr(5), &index))
    return at::Device(at::kCUDA, static_cast<int8_t>(index));
  return invalid_input(cat("device: '", text, "' is not cpu, cuda or cuda:N"));
}

Result<ModelOptions> model_options(const Config& config) {
  ModelOptions options;
  BRAID_ASSIGN(options.device, parse_device(config.device));
  options.dtype = config.model.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  options.recompute = config.train.recompute;
  options.lora = {config.lora.rank, config.lora.alpha, config.lora.targets};
  options.seed = static_cast<uint64_t>(config.train.seed);
  return options;
}

// Where a role's weights come from.
struct Origin {
  std::string folder;       // Hugging Face folder; "" = random weights
  std::string config_path;  // of random weights: the architecture

  bool operator==(const Origin& other) const {
    return folder == other.folder && config_path == other.config_path;
  }
  // The folder that an export of the role takes its config.json and tokenizer from.
  std::string source_folder() const { return folder.empty() ? parent_folder(config_path) : folder; }
  std::string text() const { return folder.empty() ? "random weights" : cat("from ", folder); }
};

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
  for (const RewardConfig& reward : config.reward)
    if (reward.type == "model") return Origin{reward.path, ""};
  return invalid_input(
      "critic.init_from: reward_model needs a reward of type model; the list `reward` has none");
}

Result<Origin> role_origin(const Config& config, const std::string& role) {
  if (role == "critic") return critic_origin(config);
  if (role == "reference" && !config.reference.path.empty())
    return Origin{config.reference.path, ""};
  return policy_origin(config);
}

Result<std::unique_ptr<Model>> load_weights(const Origin& origin, const LoadOptions& options) {
  if (!origin.folder.empty()) return load_model(origin.folder, options);
  BRAID_ASSIGN(const std::string text, read_file(origin.config_path));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(text, origin.config_path));
  if (options.scalar_head && !spec.scalar_head)
    spec.architecture = family_of(spec).score_architecture;
  spec.scalar_head = options.scalar_head;
  return make_model(spec, options.model);
}

using Roles = std::map<std::string, ModelInstance>;

// A model of the folder whose base never changes: under LoRA every trained role has one.
const Model* find_base(const Roles& roles, const std::string& folder) {
  for (const auto& [name, state] : roles) {
    const bool adapted = state.optimizer && state.model->options().lora.rank > 0;
    if (adapted && !folder.empty() && state.source_folder == folder) return state.model.get();
  }
  return nullptr;
}

Result<std::unique_ptr<Model>> trained_model(const Roles& roles, const Origin& origin,
                                             const LoadOptions& options) {
  if (!origin.folder.empty() && is_adapter_folder(origin.folder))
    return invalid_input(cat(origin.folder,
                             " holds adapters only; train from the merged export "
                             "(lora.export_as: merged) or from the base"));
  if (options.model.lora.rank == 0) return load_weights(origin, options);
  if (origin.folder.empty())
    return invalid_input("lora.rank: adapters need trained weights below them, these are random");
  const Model* base = find_base(roles, origin.folder);
  if (base != nullptr && options.scalar_head) return make_role(*base, options);
  return load_weights(origin, options);
}

// Frozen weights leave memory between their uses where that is possible.
bool offloads(const Config& config, const Model& model) {
  return config.train.offload != "off" && model.options().device.is_cpu();
}

Result<std::unique_ptr<Model>> frozen(std::unique_ptr<Model> model, const Config& config) {
  if (!offloads(config, *model)) return model;
  return offload_model(*model, "");
}

// The reference: the base of a LoRA actor, the initial actor, or a checkpoint of its own.
Result<std::unique_ptr<Model>> reference_model(const Roles& roles, const Config& config,
                                               const Origin& origin, const ModelOptions& options) {
  const auto actor = roles.find("actor");
  BRAID_ASSIGN(const Origin actor_origin, role_origin(config, "actor"));
  if (actor == roles.end() || !(actor_origin == origin)) {
    BRAID_ASSIGN(std::unique_ptr<Model> model, load_weights(origin, {options, false}));
    return frozen(std::move(model), config);
  }
  Model& initial = *actor->second.model;
  if (initial.options().lora.rank > 0) return base_view(initial);
  if (offloads(config, initial)) return offload_model(initial, "");
  return copy_model(initial);
}

// Tokens of the policy are the input of every role.
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
  log_info(cat(name, ": ", origin, ", ", all, " parameters",
               part ? cat(", ", trained, " of them trained") : ""));
}

const OptimizerConfig& optimizer_config(const Config& config, const std::string& role) {
  if (role == "critic") return config.optim.critic;
  return role == "reward" ? config.optim.reward : config.optim.actor;
}

}  // namespace

Session::Session(const Config& config, const Program& program)
    : config_(config), program_(program), store_(program.graph) {}

namespace {

bool scores_rewards(const Graph& graph, const RoleId& role) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    return call.kind == CallKind::kReward && call.role == role;
  });
}

}  // namespace

Status check_functions(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind == CallKind::kCompute)
      BRAID_TRY(find_compute(call.function).status().at(cat("call ", call.name)));
    if (call.kind == CallKind::kTrainStep)
      BRAID_TRY(find_loss(call.function).status().at(cat("call ", call.name)));
  }
  return ok_status();
}

Result<std::unique_ptr<Session>> Session::create(const Config& config, const Program& program) {
  BRAID_TRY(check_functions(program.graph));
  BRAID_TRY(validate(config.algorithm));
  BRAID_TRY(check_rewards(config.reward));
  BRAID_TRY(validate(config.optim.actor, "optim.actor"));
  BRAID_TRY(validate(config.optim.critic, "optim.critic"));
  BRAID_TRY(validate(config.optim.reward, "optim.reward"));
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  std::unique_ptr<Session> session(new Session(config, program));
  BRAID_TRY(session->load_data());
  BRAID_TRY(session->load_rewards());
  BRAID_TRY(session->load_roles());
  return session;
}

Result<ModelInstance> Session::load_role(const RoleSpec& spec) {
  const std::string& name = spec.role.value;
  BRAID_ASSIGN(ModelOptions options, model_options(config_));
  BRAID_ASSIGN(const Origin origin, role_origin(config_, name));
  ModelInstance state;
  state.source_folder = origin.source_folder();
  if (spec.trained) {
    BRAID_ASSIGN(state.model, trained_model(roles_, origin, {options, spec.scalar_head}));
    state.optimizer = std::make_unique<AdamW>(state.model->trainable_parameters(),
                                              optimizer_config(config_, name));
  } else {
    options.lora.rank = 0;
    BRAID_ASSIGN(state.model, reference_model(roles_, config_, origin, options));
  }
  if (state.model->spec().scalar_head != spec.scalar_head)
    return invalid_input(cat(origin.folder, ": ", state.model->spec().architecture,
                             " has a scalar head; this role needs a language model"));
  BRAID_TRY(check_vocabulary(roles_, state.model->spec()).at(origin.source_folder()));
  log_role(name, *state.model, origin.text());
  return state;
}

// Reward models belong to the list of rewards, also where the graph names one as a role.
Status Session::load_roles() {
  for (const RoleSpec& spec : program_.graph.roles) {
    if (scores_rewards(program_.graph, spec.role)) continue;
    auto state = load_role(spec);
    if (!state.ok()) return state.status().at(cat("role ", spec.role));
    roles_[spec.role.value] = std::move(state).value();
  }
  if (config_.algorithm.kl.coef == 0 && generates(program_.graph))
    log_info("reference: not loaded (algorithm.kl.coef is 0)");
  return load_reward_models();
}

Result<std::unique_ptr<Model>> Session::load_reward_model(const RewardConfig& reward) {
  for (size_t i = 0; i < reward_models_.size(); ++i)
    if (reward_models_[i] && config_.reward[i].path == reward.path)
      return base_view(*reward_models_[i]);
  BRAID_ASSIGN(ModelOptions options, model_options(config_));
  options.lora.rank = 0;
  const Model* base = find_base(roles_, reward.path);
  std::unique_ptr<Model> model;
  if (base != nullptr && base->spec().scalar_head && !is_adapter_folder(reward.path)) {
    BRAID_ASSIGN(model, make_role(*base, {options, true}));
  } else {
    BRAID_ASSIGN(std::unique_ptr<Model> loaded, load_model(reward.path, {options, false}));
    BRAID_ASSIGN(model, frozen(std::move(loaded), config_));
  }
  if (!model->spec().scalar_head)
    return invalid_input(cat(reward.path, ": ", model->spec().architecture,
                             " has no scalar head (score.weight); braid rm trains a reward model"));
  BRAID_TRY(check_vocabulary(roles_, model->spec()).at(reward.path));
  return model;
}

Status Session::load_reward_models() {
  for (const RewardConfig& reward : config_.reward) {
    std::unique_ptr<Model> model;
    if (scores() && reward.type == "model") {
      const std::string name = reward.name.empty() ? "model" : reward.name;
      auto loaded = load_reward_model(reward);
      if (!loaded.ok()) return loaded.status().at(cat("reward ", name));
      model = std::move(loaded).value();
      log_role(cat("reward ", name), *model, cat("from ", reward.path));
    }
    reward_models_.push_back(std::move(model));
  }
  return ok_status();
}

Status Session::load_data() {
  BRAID_ASSIGN(RunData run, load_run_data(config_, config_.data.train, data_need(program_.graph)));
  tokenizer_ = std::move(run.tokenizer);
  data_ = std::move(run.data);
  return ok_status();
}

Status Session::load_rewards() {
  if (!scores()) return ok_status();
  if (config_.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  BRAID_ASSIGN(rewards_, make_rewards(config_.reward));
  return ok_status();
}

Status Session::export_models(const std::string& folder) const {
  for (const auto& [role, state] : roles_) {
    if (!state.optimizer) continue;
    const std::string as =
        state.model->options().lora.rank > 0 ? config_.lora.export_as : std::string("merged");
    ExportOptions options;
    options.source_folder = state.source_folder;
    const std::string path = join_path(folder, role);
    if (as != "adapters")
      BRAID_TRY(save_model(*state.model, path, options).at(cat("export of ", role)));
    if (as == "merged") continue;
    options.merge_adapters = false;
    BRAID_TRY(save_model(*state.model, as == "both" ? path + "-adapter" : path, options)
                  .at(cat("export of ", role)));
  }
  return ok_status();
}

}  // namespace braid

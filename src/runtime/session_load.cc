// Building a session: models, data and rewards from the configuration.
#include <ATen/Parallel.h>

#include "base/text.h"
#include "host/file.h"
#include "runtime/session.h"

namespace braid {
namespace {

DataNeed data_need(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind != CallKind::kFetch) continue;
    if (call.function == "samples") return DataNeed::kSamples;
    if (call.function == "pairs") return DataNeed::kPairs;
  }
  return DataNeed::kPrompts;
}

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

// The folder that a role's weights come from; "" = random weights by model.config.
std::string role_folder(const Config& config, const std::string& role) {
  if (role == "critic" && config.critic.init_from == "random") return config.critic.path;
  if (role == "critic" && !config.critic.path.empty()) return config.critic.path;
  if (role == "reference" && !config.reference.path.empty()) return config.reference.path;
  return config.model.path;
}

const OptimizerConfig& optimizer_config(const Config& config, const std::string& role) {
  if (role == "critic") return config.optim.critic;
  return role == "reward" ? config.optim.reward : config.optim.actor;
}

}  // namespace

Session::Session(const Config& config, const Program& program)
    : config_(config), program_(program), store_(program.graph) {}

Result<std::unique_ptr<Session>> Session::create(const Config& config, const Program& program) {
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

Result<RoleState> Session::load_role(const RoleSpec& spec) {
  BRAID_ASSIGN(ModelOptions options, model_options(config_));
  RoleState state;
  const std::string folder = role_folder(config_, spec.role.value);
  if (!folder.empty()) {
    BRAID_ASSIGN(state.model,
                 load_model(folder, {options, spec.scalar_head}).at(cat("role ", spec.role)));
    state.source_folder = folder;
  } else if (!config_.model.config.empty()) {
    BRAID_ASSIGN(const std::string text, read_file(config_.model.config));
    BRAID_ASSIGN(ModelSpec model, parse_model_spec(text, config_.model.config));
    model.scalar_head = spec.scalar_head;
    BRAID_ASSIGN(state.model, make_model(model, options).at(cat("role ", spec.role)));
    state.source_folder = parent_folder(config_.model.config);
  } else {
    return invalid_input(
        "model.path: no model given; name a Hugging Face folder, or a config.json as model.config");
  }
  if (spec.trained)
    state.optimizer = std::make_unique<AdamW>(state.model->trainable_parameters(),
                                              optimizer_config(config_, spec.role.value));
  return state;
}

Status Session::load_roles() {
  for (const RoleSpec& spec : program_.graph.roles) {
    BRAID_ASSIGN(RoleState state, load_role(spec));
    roles_[spec.role.value] = std::move(state);
  }
  return ok_status();
}

Status Session::load_data() {
  std::string folder = config_.tokenizer.path.empty() ? config_.model.path : config_.tokenizer.path;
  const std::string file = is_folder(folder) ? join_path(folder, "tokenizer.json") : folder;
  if (!folder.empty() && path_exists(file)) {
    BRAID_ASSIGN(tokenizer_, load_tokenizer(folder));
  } else if (!config_.tokenizer.path.empty()) {
    return not_found(cat("tokenizer.path: ", file, " does not exist"));
  }
  const Tokenizer* tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
  BRAID_ASSIGN(
      data_, load_data_set(config_.data.train, data_need(program_.graph), tokenizer, config_.data));
  return ok_status();
}

Status Session::load_rewards() {
  if (!generates(program_.graph)) return ok_status();
  if (config_.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  BRAID_ASSIGN(rewards_, make_rewards(config_.reward));
  for (const RewardConfig& reward : config_.reward) {
    std::unique_ptr<Model> model;
    if (reward.type == "model") {
      BRAID_ASSIGN(ModelOptions options, model_options(config_));
      options.lora.rank = 0;
      BRAID_ASSIGN(model, load_model(reward.path, {options, true}).at("reward model"));
    }
    reward_models_.push_back(std::move(model));
  }
  return ok_status();
}

Status Session::export_models(const std::string& folder) const {
  for (const auto& [role, state] : roles_) {
    if (!state.optimizer) continue;
    ExportOptions options;
    options.source_folder = state.source_folder;
    BRAID_TRY(
        save_model(*state.model, join_path(folder, role), options).at(cat("export of ", role)));
  }
  return ok_status();
}

}  // namespace braid

// Building a session: models, data and rewards from the configuration.
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "host/machine.h"
#include "nn/model_share.h"
#include "runtime/run_data.h"
#include "runtime/session.h"

namespace braid {
namespace {

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

// The reference: the base of a LoRA actor, the weights of the actor until they change, or a
// checkpoint of its own.
Status set_reference(const Roles& roles, const Config& config, const Origin& origin,
                     const ModelOptions& options, ModelInstance& state) {
  const auto actor = roles.find("actor");
  BRAID_ASSIGN(const Origin actor_origin, role_origin(config, "actor"));
  if (actor == roles.end() || !(actor_origin == origin)) {
    BRAID_ASSIGN(std::unique_ptr<Model> model, load_weights(origin, {options, false}));
    BRAID_ASSIGN(state.model, frozen(std::move(model), config));
    return ok_status();
  }
  Model& initial = *actor->second.model;
  const bool base_stays = initial.options().lora.rank > 0;
  state.model = base_stays ? base_view(initial) : share_model(initial);
  if (!base_stays) state.shares_with = actor->first;
  return ok_status();
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

// Frozen roles that share the weights of a trained one get a copy of their own.
Status Session::keep_frozen_copies(const std::string& changing) {
  const Model& model = *roles_.at(changing).model;
  for (auto& [name, role] : roles_) {
    if (role.shares_with != changing) continue;
    role.shares_with.clear();
    if (offloads(config_, model)) {
      BRAID_ASSIGN(role.model, offload_model(model, "").at(cat("role ", name)));
    } else {
      role.model = copy_model(model);
    }
  }
  return ok_status();
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
    BRAID_TRY(set_reference(roles_, config_, origin, options, state));
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
  if (!scores()) return ok_status();
  BRAID_ASSIGN(reward_models_, load_reward_models(config_, roles_));
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
  if (config_.train.offload != "off") release_free_heap();  // files come into memory beside it
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

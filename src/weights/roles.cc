#include "weights/roles.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "config/evaluates.h"
#include "host/file.h"
#include "host/machine.h"
#include "nn/decoder.h"
#include "nn/dtype_text.h"
#include "nn/model_parts.h"
#include "nn/model_share.h"
#include "plan/make_problem.h"
#include "reward/reward.h"
#include "samples/fetch_samples.h"
#include "train/sharded_optimizer.h"
#include "weights/follow.h"

namespace braid::inline weights {
namespace {

bool same_part(const ModelOptions& a, const ModelOptions& b) {
  return a.ranges == b.ranges && a.tensor_parallel.tp_rank == b.tensor_parallel.tp_rank &&
         a.tensor_parallel.tp_size == b.tensor_parallel.tp_size &&
         a.tensor_parallel.communicator == b.tensor_parallel.communicator;
}

Result<std::unique_ptr<Model>> trained_model(const Roles& roles, const Origin& origin,
                                             const LoadOptions& options, const ModelPart& part) {
  if (!origin.folder.empty() && is_adapter_folder(origin.folder))
    return invalid_input(cat(origin.folder,
                             " holds adapters only; train from the merged export "
                             "(lora.export_as: merged) or from the base"));
  if (options.model.lora.rank == 0) return load_weights(origin, options);
  if (origin.folder.empty())
    return invalid_input("lora.rank: adapters need trained weights below them, these are random");
  const Model* base = find_base(roles, origin.folder);
  const bool shares = base != nullptr && !part.alone && same_part(base->options(), options.model);
  if (shares && options.scalar_head) return make_role(*base, options);
  return load_weights(origin, options);
}

void take_part(const ModelPart& part, ModelOptions& options) {
  options.ranges = part.ranges;
  options.kept = part.kept.value_or(options.kept);
  options.tensor_parallel = part.tensor;
}

// The reference: the base of a LoRA actor, the weights of the actor until they change, or a
// checkpoint of its own.
Status set_reference(const Roles& roles, const Config& config, const Origin& origin,
                     const LoadOptions& load, ModelInstance& state) {
  const auto actor = roles.find("actor");
  BRAID_ASSIGN(const Origin actor_origin, role_origin(config, "actor"));
  const bool shares = actor != roles.end() && actor_origin == origin && !actor->second.alone &&
                      same_part(actor->second.model->options(), load.model);
  if (!shares) {
    LoadOptions plain{load.model};
    plain.read = load.read;
    plain.readers = load.readers;
    BRAID_ASSIGN(std::unique_ptr<Model> model, load_weights(origin, plain));
    BRAID_ASSIGN(state.model, frozen(std::move(model), config));
    return ok_status();
  }
  Model& initial = *actor->second.model;
  const bool base_stays = initial.options().lora.rank > 0;
  state.model = base_stays ? base_view(initial) : share_model(initial);
  if (!base_stays) state.shares_with = actor->first;
  return ok_status();
}

// Sums of bf16 gradients would round at each addition; those of ranks travel in buckets.
void add_gradients(const ModelPart& part, const Model& model, ModelInstance& state) {
  MainGradientOptions options;
  options.sharded = part.zero_stage >= 1;
  options.each_backward = part.zero_stage >= 2;
  if (options.each_backward)
    for (const ParameterPart& trained : trainable_parts(model))
      options.buckets.apart.push_back(trained.number);
  state.gradients =
      std::make_unique<MainGradients>(model.trainable_parameters(), part.data, options);
}

// The weights as slices, where ranks share them.
void cut_weights(const ModelPart& part, Model& model, bool loaded, ModelInstance& state) {
  auto* decoder = dynamic_cast<Decoder*>(&model);
  BRAID_CHECK(decoder != nullptr, "a view or an offloaded copy is not cut");
  const FlatBuckets* trained = state.gradients ? &state.gradients->layout() : nullptr;
  state.shards = std::make_unique<WeightShards>(*decoder, *part.weights, trained, loaded);
  decoder->set_keeper(state.shards.get());
}

// How to load a model of which ranks may share the weights.
LoadOptions load_options(const ModelOptions& options, const RoleSpec& spec, const ModelPart& part,
                         ModelInstance& state) {
  LoadOptions out{options, spec.scalar_head, spec.value_head};
  out.read = part.read;
  out.readers = part.readers;
  if (part.weights == nullptr) return out;
  out.placed = [&](Model& model, bool loaded) {
    if (spec.trained && part.several) add_gradients(part, model, state);
    cut_weights(part, model, loaded, state);
  };
  return out;
}

void add_optimizer(const OptimizerConfig& config, const ModelPart& part, ModelInstance& state) {
  const bool sums = part.several || state.model->options().dtype != at::kFloat;
  if (sums && !state.gradients) add_gradients(part, *state.model, state);
  if (part.zero_stage >= 1) {
    state.optimizer =
        std::make_unique<ShardedOptimizer>(*state.gradients, part.data, config, state.shards.get());
    return;
  }
  auto optimizer = std::make_unique<AdamW>(state.model->trainable_parameters(), config);
  if (state.gradients) optimizer->use(state.gradients.get());
  state.optimizer = std::move(optimizer);
}

Result<ModelInstance> load_role(const RoleSpec& spec, const Config& config, const ModelPart& part,
                                const Roles& others) {
  const std::string& name = spec.role.value;
  BRAID_ASSIGN(ModelOptions options, model_options(config));
  take_part(part, options);
  BRAID_ASSIGN(const Origin origin, role_origin(config, spec));
  ModelInstance state;
  state.source_folder = origin.source_folder();
  state.config_path = origin.config_path;
  state.follows = !spec.weights_from.value.empty();
  state.alone = part.alone || state.follows;
  if (spec.trained) {
    const LoadOptions load = load_options(options, spec, part, state);
    BRAID_ASSIGN(state.model, trained_model(others, origin, load, part));
    add_optimizer(optimizer_config(config, name), part, state);
  } else {
    options.lora.rank = 0;
    LoadOptions load = load_options(options, spec, part, state);
    load.scalar_head = false;  // a head that the checkpoint lacks would be a random one
    if (is_scorer(spec)) {
      BRAID_ASSIGN(state.model, load_reward_model(origin.folder, config, others, load, part.alone));
    } else if (state.alone) {
      BRAID_ASSIGN(state.model, load_weights(origin, load));
    } else {
      BRAID_TRY(set_reference(others, config, origin, load, state));
    }
  }
  if (state.model->spec().scalar_head != spec.scalar_head)
    return invalid_input(cat(origin.folder, ": ", state.model->spec().architecture,
                             " has a scalar head; this role needs a language model"));
  BRAID_TRY(check_vocabulary(others, state.model->spec()).at(origin.source_folder()));
  if (state.follows && config.reference.ema > 0) keep_average(state);
  log_role(name, *state.model, origin.text());
  return state;
}

}  // namespace

Result<ModelInstance> load_role_copy(const RoleSpec& spec, const Config& config,
                                     const ModelPart& part, const Decoder* lender) {
  ModelInstance copy;
  BRAID_ASSIGN(ModelOptions options, model_options(config));
  BRAID_ASSIGN(const Origin origin, role_origin(config, spec.role.value));
  take_part(part, options);
  if (!spec.trained) options.lora.rank = 0;
  const bool filled = spec.trained || !spec.weights_from.value.empty();  // by a reallocation
  if (!filled || options.lora.rank > 0) {
    ModelPart given = part;
    given.several = false;  // a copy is not trained
    BRAID_ASSIGN(copy.model, load_weights(origin, load_options(options, spec, given, copy)));
    if (!spec.trained && !copy.shards) {
      BRAID_ASSIGN(copy.model, frozen(std::move(copy.model), config));
    }
    return copy;
  }
  BRAID_ASSIGN(const ModelSpec architecture,
               origin_spec(origin, spec.scalar_head, spec.value_head));
  BRAID_TRY(Decoder::validate_options(architecture, options));
  copy.model = std::make_unique<Decoder>(architecture, options, lender);
  if (part.weights != nullptr) cut_weights(part, *copy.model, false, copy);
  return copy;
}

const OptimizerConfig& optimizer_config(const Config& config, const std::string& role) {
  if (role == "critic") return config.optim.critic;
  return role == "reward" ? config.optim.reward : config.optim.actor;
}

TensorMap changed_tensors(const ModelSpec& architecture, const Config& config) {
  return config.lora.rank > 0 ? adapter_map(architecture, config.lora.rank, config.lora.targets)
                              : tensor_map(architecture);
}

RoleSpec as_moved(const Graph& graph, RoleSpec spec) {
  if (!changes(graph, spec.role)) spec.weights_from = {};
  return spec;
}

bool needs_rewards(const Config& config, const Graph& graph) {
  const bool asked = generates(graph) && config.rollout.replay.empty();
  return asked || evaluates(config);
}

Result<Roles> load_roles(const Config& config, const Graph& graph,
                         const std::map<std::string, ModelPart>& parts) {
  Roles roles;
  for (const RoleSpec& declared : graph.roles) {
    const RoleSpec spec = as_moved(graph, declared);
    if (is_scorer(spec) && !needs_rewards(config, graph)) continue;
    const auto part = parts.find(spec.role.value);
    auto state = load_role(spec, config, part == parts.end() ? ModelPart() : part->second, roles);
    const RewardConfig* const reward =
        is_scorer(spec) ? reward_model(config, spec.role.value) : nullptr;
    if (!state.ok())
      return state.status().at(reward != nullptr ? cat("reward ", reward_name(*reward))
                                                 : cat("role ", spec.role));
    roles[spec.role.value] = std::move(state).value();
  }
  const bool without = find_role(graph, RoleId{"reference"}) == nullptr;
  if (without && config.algorithm.kl.coef == 0 && generates(graph))
    log_info("reference: not loaded (algorithm.kl.coef is 0)");
  return roles;
}

Status keep_frozen_copies(Roles& roles, const std::string& changing, const Config& config) {
  const Model& model = *roles.at(changing).model;
  for (auto& [name, role] : roles) {
    if (role.shares_with != changing) continue;
    if (offloads(config)) {
      BRAID_ASSIGN(role.model, offload_model(model, "").at(cat("role ", name)));
    } else {
      role.model = copy_model(model);
    }
    role.shares_with.clear();
  }
  return ok_status();
}

int64_t frozen_copy_bytes(const Roles& roles, const Config& config) {
  int64_t bytes = 0;
  for (const auto& [name, role] : roles) {
    if (role.shares_with.empty() || offloads(config)) continue;
    for (const auto& [tensor, parameter] : roles.at(role.shares_with).model->parameters())
      bytes += static_cast<int64_t>(parameter.nbytes());
  }
  return bytes;
}

}  // namespace braid::inline weights

#include "weights/run_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "nn/model_parts.h"
#include "weights/follow.h"
#include "weights/roles.h"

namespace braid::inline weights {
namespace {

constexpr const char* kOptimizer = ".optimizer";
constexpr const char* kUpdates = "step";  // AdamW's own count, the one integer among its tensors

std::map<std::string, at::Tensor> by_name(const NamedTensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

std::set<std::string> parameter_names(const Model& model) {
  std::set<std::string> out;
  for (const auto& [name, parameter] : model.trainable_parameters()) out.insert(name);
  return out;
}

// What of a checkpoint's whole tensors a part of a model has. A name is a parameter's, or that and
// a state of the optimizer.
Result<std::map<std::string, at::Tensor>> own_part(const Model& model,
                                                   const std::vector<std::string>& names,
                                                   const std::map<std::string, at::Tensor>& whole) {
  std::map<std::string, at::Tensor> out;
  const std::set<std::string> parameters = parameter_names(model);
  for (const std::string& name : names) {
    const auto found = whole.find(name);
    if (found == whole.end()) return invalid_input(cat("has no tensor ", name));
    const std::string parameter =
        parameters.count(name) > 0 ? name : name.substr(0, name.rfind('.'));
    BRAID_ASSIGN(out[name], own_slice(model, parameter, found->second));
  }
  return out;
}

Status check_weights(const Model& model, const std::map<std::string, at::Tensor>& saved) {
  const auto own = model.trainable_parameters();
  for (const auto& [name, parameter] : own) {
    const auto found = saved.find(name);
    if (found == saved.end()) return invalid_input(cat("has no tensor ", name));
    if (found->second.sizes() != parameter.sizes() ||
        found->second.scalar_type() != parameter.scalar_type())
      return invalid_input(cat("tensor ", name, " is ", found->second.scalar_type(),
                               found->second.sizes(), ", the model's is ", parameter.scalar_type(),
                               parameter.sizes()));
  }
  if (own.size() != saved.size())
    return invalid_input(cat("has ", saved.size(), " tensors, the model trains ", own.size()));
  return ok_status();
}

void copy_weights(Model& model, const std::map<std::string, at::Tensor>& saved) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, parameter] : model.trainable_parameters()) {
    at::Tensor target = parameter.detach();
    target.copy_(saved.at(name));
  }
}

Result<NamedTensors> group(const CheckpointState& state, const std::string& name) {
  const auto found = state.tensors.find(name);
  if (found != state.tensors.end()) return found->second;
  return invalid_input(cat("has no ", name, ".safetensors: the run trained other models"));
}

Status load_role_state(const std::string& name, const CheckpointState& state, const Config& config,
                       Roles& roles) {
  ModelInstance& role = roles.at(name);
  BRAID_ASSIGN(const NamedTensors saved_moments, group(state, name + kOptimizer));
  BRAID_ASSIGN(const Json all, json_field<Json>(state.numbers, "roles"));
  BRAID_ASSIGN(const Json numbers, json_field<Json>(all, name));
  BRAID_ASSIGN(const auto updates, json_field<int64_t>(numbers, "updates"));
  BRAID_ASSIGN(role.skipped, json_field<int64_t>(numbers, "skipped"));
  auto moments = by_name(saved_moments);
  if (is_part(*role.model)) {
    std::vector<std::string> names;
    for (const std::string& key : role.optimizer->state_names())
      if (key != kUpdates) names.push_back(key);
    BRAID_ASSIGN(moments, own_part(*role.model, names, moments));
  }
  moments[kUpdates] = at::tensor(updates, at::kLong);
  BRAID_TRY(keep_frozen_copies(roles, name, config));
  const int64_t units = role.shards ? role.shards->units() : 0;
  for (int64_t unit = 0; unit < units; ++unit) role.shards->open(unit);
  BRAID_TRY(load_role_weights(name, state, *role.model));
  BRAID_TRY(role.optimizer->load_state(moments).at(name + kOptimizer));  // the slices, too
  for (int64_t unit = 0; unit < units; ++unit) role.shards->leave(unit);
  return ok_status();
}

// Of a role that follows another one.
Status load_follower_state(const std::string& name, const CheckpointState& state,
                           ModelInstance& role) {
  const int64_t units = role.shards ? role.shards->units() : 0;
  for (int64_t unit = 0; unit < units; ++unit) role.shards->open(unit);
  BRAID_TRY(load_role_weights(name, state, *role.model));
  for (int64_t unit = 0; unit < units; ++unit) role.shards->close(unit);
  BRAID_ASSIGN(const NamedTensors saved, group(state, name + kOptimizer));
  auto average = by_name(saved);
  if (is_part(*role.model)) {
    std::vector<std::string> names;
    for (const auto& [tensor, value] : average) names.push_back(tensor);
    std::erase_if(names, [&](const std::string& tensor) {
      return parameter_names(*role.model).count(tensor.substr(0, tensor.rfind('.'))) == 0;
    });
    BRAID_ASSIGN(average, own_part(*role.model, names, average));
  }
  return load_average(role, average).at(name + kOptimizer);
}

}  // namespace

Status load_role_weights(const std::string& name, const CheckpointState& state, Model& model) {
  BRAID_ASSIGN(const NamedTensors weights, group(state, name + kWeightsGroup));
  auto saved = by_name(weights);
  if (is_part(model)) {
    const std::set<std::string> names = parameter_names(model);
    BRAID_ASSIGN(saved, own_part(model, {names.begin(), names.end()}, saved));
  }
  BRAID_TRY(check_weights(model, saved).at(name + kWeightsGroup));
  copy_weights(model, saved);
  model.weights_changed();
  return ok_status();
}

Result<ModelInstance> whole_with(const RoleSpec& spec, const Config& config,
                                 const RoleTensors& learnt) {
  const std::string& name = spec.role.value;
  BRAID_ASSIGN(ModelInstance whole, load_whole(spec, config));
  CheckpointState state;
  state.tensors[name + kWeightsGroup] = learnt.weights;
  BRAID_TRY(load_role_weights(name, state, *whole.model));
  return whole;
}

Result<int64_t> whole_bytes(const RoleSpec& role, const Config& config) {
  BRAID_ASSIGN(const Origin origin, role_origin(config, role));
  BRAID_ASSIGN(const ModelSpec spec, origin_spec(origin, role.scalar_head, role.value_head));
  int64_t elements = 0;
  for (const TensorKind& kind : kinds_of(changed_tensors(spec, config)))
    elements += kind.elements * std::max(kind.layer_end - kind.layer_begin, 1);
  const bool rounded = config.model.dtype == "bf16";
  int64_t width = rounded ? 2 : 4;
  if (role.trained) {
    width += optimizer_config(config, role.role.value).name == "adamw" ? 8 : 0;
    width += rounded ? 4 : 0;  // masters
  } else if (config.reference.ema > 0) {
    width += rounded ? 4 : 0;  // its average
  }
  return elements * width;
}

Result<RoleTensors> role_tensors(const ModelInstance& role, bool wanted) {
  RoleTensors out;
  out.skipped = role.skipped;
  if (role.shards) {
    BRAID_ASSIGN(out.weights, role.follows ? role.shards->whole(role.shards->own_slices(), wanted)
                                           : role.shards->trained(wanted));
  } else {
    out.weights = role.model->trainable_parameters();
  }
  if (role.follows) {
    BRAID_ASSIGN(out.moments, average_tensors(role, wanted));
    return out;
  }
  BRAID_ASSIGN(const OptimizerState state, role.optimizer->state(wanted));
  for (const auto& [key, tensor] : state) {
    if (key == kUpdates)
      out.updates = tensor.item<int64_t>();
    else
      out.moments.emplace_back(key, tensor);
  }
  return out;
}

Result<CheckpointState> run_state(const Json& identity, const RunPosition& position,
                                  const std::map<std::string, RoleTensors>& roles) {
  CheckpointState state;
  state.numbers = identity;
  state.numbers["step"] = position.step;
  state.numbers["cursor"] = position.cursor;
  state.numbers["tokens_seen"] = position.tokens_seen;
  state.numbers["algo_state"] = position.algo;
  state.numbers["roles"] = Json::object();
  for (const auto& [name, value] : position.algo)
    if (!std::isfinite(value))
      return Status(Code::kStopped, cat("the algorithm's state '", name, "' is not finite"));
  for (const auto& [name, role] : roles) {
    state.tensors[name + kWeightsGroup] = role.weights;
    state.tensors[name + kOptimizer] = role.moments;
    state.numbers["roles"][name] = {{"updates", role.updates}, {"skipped", role.skipped}};
  }
  return state;
}

Status load_run_state(const CheckpointState& state, const Config& config, RunPosition& position,
                      Roles& roles) {
  for (const auto& [name, role] : roles)
    if (role.optimizer) BRAID_TRY(load_role_state(name, state, config, roles));
  for (auto& [name, role] : roles)
    if (role.follows) BRAID_TRY(load_follower_state(name, state, role));
  BRAID_ASSIGN(position.step, json_field<int64_t>(state.numbers, "step"));
  BRAID_ASSIGN(position.cursor, json_field<int64_t>(state.numbers, "cursor"));
  BRAID_ASSIGN(position.tokens_seen, json_field<int64_t>(state.numbers, "tokens_seen"));
  BRAID_ASSIGN(position.algo, json_field<AlgoState>(state.numbers, "algo_state"));
  return ok_status();
}

}  // namespace braid::inline weights

#include "weights/run_state.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"
#include "nn/model_parts.h"
#include "weights/roles.h"

namespace braid::inline weights {
namespace {

// Of a whole role the group has these tensors and no others. (A part does not know the others.)
Status check_names(CheckpointReader& saved, const std::string& group,
                   const std::vector<SavedSlice>& held) {
  std::set<std::string> own;
  for (const SavedSlice& slice : held) own.insert(slice.tensor);
  BRAID_ASSIGN(const std::set<std::string> names, saved.tensors(group));
  if (names.size() <= own.size()) return ok_status();
  return invalid_input(cat("has ", names.size(), " tensors, the model's are ", own.size(),
                           ": it belongs to another model"));
}

// Whether all of the role's weights and state are here.
bool is_whole(const ModelInstance& role) {
  return !is_part(*role.model) && !role.shards && !(role.gradients && role.gradients->sharded());
}

Status read_group(CheckpointReader& saved, const std::string& group,
                  const std::vector<SavedSlice>& held, bool whole) {
  BRAID_TRY(saved.read(group, held).at(group));
  return whole ? check_names(saved, group, held).at(group) : ok_status();
}

Result<Json> numbers_of(const Json& numbers, const std::string& role) {
  BRAID_ASSIGN(const Json all, json_field<Json>(numbers, "roles"));
  return json_field<Json>(all, role);
}

Status load_role_state(const std::string& name, CheckpointReader& saved, const Config& config,
                       Roles& roles) {
  BRAID_TRY(keep_frozen_copies(roles, name, config));
  ModelInstance& role = roles.at(name);
  BRAID_TRY(load_role_weights(name, saved, role));
  BRAID_TRY(read_group(saved, name + kOptimizerGroup, held_slices(role).moments, is_whole(role)));
  if (!role.optimizer) return ok_status();
  BRAID_ASSIGN(const Json numbers, numbers_of(saved.numbers(), name));
  BRAID_ASSIGN(role.skipped, json_field<int64_t>(numbers, "skipped"));
  return ok_status();
}

// Numbers that a run changes of a role.
Result<int64_t> changed_elements(const RoleSpec& role, const Config& config) {
  BRAID_ASSIGN(const Origin origin, role_origin(config, role));
  BRAID_ASSIGN(const ModelSpec spec, origin_spec(origin, role.scalar_head, role.value_head));
  int64_t elements = 0;
  for (const TensorKind& kind : kinds_of(changed_tensors(spec, config)))
    elements += kind.elements * std::max(kind.layer_end - kind.layer_begin, 1);
  return elements;
}

int64_t weight_width(const Config& config) { return config.model.dtype == "bf16" ? 2 : 4; }

}  // namespace

Status load_role_weights(const std::string& name, CheckpointReader& saved,
                         const ModelInstance& role) {
  const bool whole = !is_part(*role.model) && !role.shards;
  BRAID_TRY(read_group(saved, name + kWeightsGroup, held_slices(role).weights, whole));
  role.model->weights_changed();
  return ok_status();
}

Result<int64_t> whole_weight_bytes(const RoleSpec& role, const Config& config) {
  BRAID_ASSIGN(const int64_t elements, changed_elements(role, config));
  return elements * weight_width(config);
}

Result<int64_t> whole_bytes(const RoleSpec& role, const Config& config) {
  BRAID_ASSIGN(const int64_t elements, changed_elements(role, config));
  const bool rounded = config.model.dtype == "bf16";
  int64_t width = weight_width(config);
  if (role.trained) {
    width += optimizer_config(config, role.role.value).name == "adamw" ? 8 : 0;
    width += rounded ? 4 : 0;  // masters
  } else if (config.reference.ema > 0) {
    width += rounded ? 4 : 0;  // its average
  }
  return elements * width;
}

Result<Json> run_numbers(const Json& identity, const RunPosition& position) {
  Json numbers = identity;
  numbers["step"] = position.step;
  numbers["cursor"] = position.cursor;
  numbers["tokens_seen"] = position.tokens_seen;
  numbers["algo_state"] = position.algo;
  for (const auto& [name, value] : position.algo)
    if (!std::isfinite(value))
      return Status(Code::kStopped, cat("the algorithm's state '", name, "' is not finite"));
  return numbers;
}

void add_role(const std::string& name, const ModelInstance& role, RoleSlices slices, bool leads,
              CheckpointState* share) {
  const auto add = [&](const char* group, std::vector<SavedSlice> own) {
    if (leads || !own.empty()) share->tensors[name + group] = std::move(own);
  };
  add(kWeightsGroup, std::move(slices.weights));
  add(kOptimizerGroup, std::move(slices.moments));
  const int64_t updates = role.optimizer ? role.optimizer->updates() : 0;
  share->numbers["roles"][name] = {{"updates", updates}, {"skipped", role.skipped}};
}

Status load_run_state(CheckpointReader& saved, const Config& config, RunPosition& position,
                      Roles& roles) {
  for (const auto& [name, role] : roles)
    if (role.optimizer || role.follows) BRAID_TRY(load_role_state(name, saved, config, roles));
  const Json& numbers = saved.numbers();
  BRAID_ASSIGN(position.step, json_field<int64_t>(numbers, "step"));
  BRAID_ASSIGN(position.cursor, json_field<int64_t>(numbers, "cursor"));
  BRAID_ASSIGN(position.tokens_seen, json_field<int64_t>(numbers, "tokens_seen"));
  BRAID_ASSIGN(position.algo, json_field<AlgoState>(numbers, "algo_state"));
  return ok_status();
}

Status take_over_state(const Json& numbers, Roles& roles) {
  for (auto& [name, role] : roles) {
    if (!role.optimizer) continue;
    BRAID_ASSIGN(const Json own, numbers_of(numbers, name));
    BRAID_ASSIGN(const auto updates, json_field<int64_t>(own, "updates"));
    BRAID_TRY(role.optimizer->take_over(updates));
    role.model->weights_changed();
  }
  return ok_status();
}

}  // namespace braid::inline weights

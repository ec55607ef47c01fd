#include "program/model_shape.h"

#include <algorithm>

#include "program/tensor_map.h"

namespace braid::inline program {

std::vector<TensorKind> role_kinds(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  if (model.knows_tensors()) return kinds_of(tensor_map(model.spec));
  const RoleSpec* spec = find_role(problem.graph, role);
  return tensor_kinds(model.spec, spec);
}

std::vector<TensorKind> changed_kinds(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  if (!model.trainable.lora || !model.knows_tensors()) return role_kinds(problem, role);
  return kinds_of(adapter_map(model.spec, model.trainable.lora_rank, model.lora_targets));
}

ModelShape model_shape(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  ModelShape shape;
  shape.role = role;
  shape.kinds = role_kinds(problem, role);
  if (changes(problem.graph, role)) shape.changed = changed_kinds(problem, role);
  shape.layers = model.spec.layers, shape.hidden = model.spec.hidden;
  shape.cached = 2 * model.spec.kv_heads * model.spec.head_dim, shape.experts = model.spec.experts,
  shape.routes = model.spec.top_k;
  shape.trained_share = model.trainable.lora ? trainable_fraction(model.spec, model.trainable) : 1;
  shape.widths = widths_of(model.precision);
  shape.reduction = problem.reduction;
  return shape;
}

bool knows_adapters(const ModelShape& model) {
  return model.trained_share < 1 && !model.changed.empty() && model.changed != model.kinds;
}

TrainedParts trained_parts(const ModelShape& model) {
  if (model.trained_share >= 1) return {};
  if (!knows_adapters(model)) return {.embedding = false};
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::any_of(model.changed.begin(), model.changed.end(), [&](const TensorKind& kind) {
      return std::find(names.begin(), names.end(), kind.name) != names.end();
    });
  };
  return {false, has({"query_adapter", "key_value_adapter", "output_adapter"}),
          has({"mlp_adapter"})};
}

// A scalar head sees all rows on every rank.
bool is_partial(const ModelShape& model, const TensorKind& kind, bool sequence_parallel) {
  if (kind.units > 1 || kind.name == "scalar_head") return false;
  return sequence_parallel || kind.partial || model.trained_share < 1;
}

}  // namespace braid::inline program

#include "program/model_shape.h"

#include "program/tensor_map.h"

namespace braid::inline program {

std::vector<TensorKind> role_kinds(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  if (model.spec) return kinds_of(tensor_map(*model.spec));
  const RoleSpec* spec = find_role(problem.graph, role);
  return tensor_kinds(model.size, spec != nullptr && spec->scalar_head);
}

std::vector<TensorKind> changed_kinds(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  if (!model.trainable.lora || !model.spec) return role_kinds(problem, role);
  return kinds_of(adapter_map(*model.spec, model.trainable.lora_rank, model.lora_targets));
}

ModelShape model_shape(const PlanningProblem& problem, const RoleId& role) {
  const RoleModel& model = model_of(problem, role);
  ModelShape shape;
  shape.role = role;
  shape.kinds = role_kinds(problem, role);
  const RoleSpec* spec = find_role(problem.graph, role);
  if (spec != nullptr && spec->trained) shape.changed = changed_kinds(problem, role);
  shape.layers = model.size.layers, shape.hidden = model.size.hidden;
  shape.cached = 2 * model.size.kv_heads * model.size.head_dim, shape.experts = model.size.experts,
  shape.routes = model.size.top_k;
  shape.trained_share = model.trainable.lora ? trainable_fraction(model.size, model.trainable) : 1;
  shape.widths = widths_of(model.precision);
  return shape;
}

}  // namespace braid::inline program

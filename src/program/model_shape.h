// What the ops of a call depend on in its role's model: its tensors, and bytes per number. A value.
#pragma once

#include <vector>

#include "plan/problem.h"
#include "pricing/widths.h"
#include "program/layout.h"

namespace braid::inline program {

struct ModelShape {
  RoleId role;
  std::vector<TensorKind> kinds;
  std::vector<TensorKind> changed;  // of these what training changes: what reallocations move
  int64_t layers = 0, hidden = 0;
  int64_t cached = 0;               // numbers of a token's keys and values in a layer
  int64_t experts = 0, routes = 0;  // routed experts of a layer, and those that a token passes
  double trained_share = 1;         // of all parameters: adapters train fewer
  NumberWidths widths;
  Reduction reduction = Reduction::kNative;
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};
// The kinds of tensors of a role's model: of its spec where the problem has it, else what its size
// tells.
std::vector<TensorKind> role_kinds(const PlanningProblem& problem, const RoleId& role);
// Of these what training changes, so that other copies of the weights need it: adapters alone where
// the spec is known and the role has them.
std::vector<TensorKind> changed_kinds(const PlanningProblem& problem, const RoleId& role);
ModelShape model_shape(const PlanningProblem& problem, const RoleId& role);

// What of a model training changes, as far as gradients pass it.
struct TrainedParts {
  bool embedding = true, attention = true, mlp = true;
};
TrainedParts trained_parts(const ModelShape& model);
// Whether `changed` are the kinds of adapters.
bool knows_adapters(const ModelShape& model);
// Whether tensor-parallel ranks that hold a kind whole have each a part of its gradient.
bool is_partial(const ModelShape& model, const TensorKind& kind, bool sequence_parallel);

}  // namespace braid::inline program

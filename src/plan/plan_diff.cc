// The differences of two execution plans in readable lines.
#include <algorithm>

#include "base/text.h"
#include "plan/plan_fields.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

using Lines = std::vector<std::string>;

template <typename T>
void changed(const std::string& what, const T& a, const T& b, Lines* lines) {
  if (!(a == b)) lines->push_back(cat(what, ": ", a, " -> ", b));
}

const char* flag_text(bool value) { return value ? "true" : "false"; }

void diff_calls(const CallPlan& a, const CallPlan& b, Lines* lines) {
  changed(cat(a.call, ": mesh"), mesh_text(a.mesh), mesh_text(b.mesh), lines);
  for (const plan_fields::StrategyField& field : plan_fields::strategy_fields())
    changed(cat(a.call, ": ", field.name), plan_fields::value_text(field, a.strategy),
            plan_fields::value_text(field, b.strategy), lines);
  const auto layers = [](const CallPlan& call) {
    const std::string text = plan_fields::stage_layers_text(call.strategy);
    return text.empty() ? std::string("even") : text;
  };
  changed(cat(a.call, ": ", plan_fields::kStageLayers), layers(a), layers(b), lines);
}

void diff_roles(const RolePlan& a, const RolePlan& b, Lines* lines) {
  const std::string role = cat("role ", a.role, ": ");
  changed(role + "weights", std::string(residency_name(a.weights)),
          std::string(residency_name(b.weights)), lines);
  changed(role + "optimizer", std::string(residency_name(a.optimizer)),
          std::string(residency_name(b.optimizer)), lines);
  changed(role + "when", std::string(plan_fields::timing_name(a.timing)),
          std::string(plan_fields::timing_name(b.timing)), lines);
  changed(role + "prefetch", std::string(flag_text(a.prefetch)), std::string(flag_text(b.prefetch)),
          lines);
}

const CallPlan* entry_of(const ExecutionPlan& plan, const std::string& call) {
  for (const CallPlan& entry : plan.calls)
    if (entry.call == call) return &entry;
  return nullptr;
}

RolePlan role_or_stay(const ExecutionPlan& plan, const RoleId& role) {
  RolePlan stays;
  stays.role = role;
  for (const RolePlan& entry : plan.roles)
    if (entry.role == role) return entry;
  return stays;
}

std::string call_text(const CallPlan& call) {
  return cat(call.call, ": mesh ", mesh_text(call.mesh), " ", strategy_text(call.strategy));
}

}  // namespace

std::vector<std::string> diff(const ExecutionPlan& a, const ExecutionPlan& b) {
  Lines lines;
  changed("graph", a.graph, b.graph, &lines);
  changed("devices", a.devices, b.devices, &lines);
  for (const CallPlan& call : a.calls) {
    const CallPlan* other = entry_of(b, call.call);
    if (other == nullptr)
      lines.push_back(cat("only in the first: ", call_text(call)));
    else
      diff_calls(call, *other, &lines);
  }
  for (const CallPlan& call : b.calls)
    if (entry_of(a, call.call) == nullptr)
      lines.push_back(cat("only in the second: ", call_text(call)));
  std::vector<RoleId> roles;
  for (const ExecutionPlan* plan : {&a, &b})
    for (const RolePlan& entry : plan->roles)
      if (std::find(roles.begin(), roles.end(), entry.role) == roles.end())
        roles.push_back(entry.role);
  for (const RoleId& role : roles) diff_roles(role_or_stay(a, role), role_or_stay(b, role), &lines);
  changed("fusion: train_schedules", std::string(flag_text(a.fusion.train_schedules)),
          std::string(flag_text(b.fusion.train_schedules)), &lines);
  changed("fusion: migrate_below_samples", migration_text(a.fusion), migration_text(b.fusion),
          &lines);
  changed("fusion: migrate_to_samples", a.fusion.migrate_to_samples, b.fusion.migrate_to_samples,
          &lines);
  changed("fusion: migrate_cache", std::string(flag_text(a.fusion.migrate_cache)),
          std::string(flag_text(b.fusion.migrate_cache)), &lines);
  changed("fusion: pre_copy_below_samples", a.fusion.pre_copy_below_samples,
          b.fusion.pre_copy_below_samples, &lines);
  changed("fusion: scored_prefixes", std::string(flag_text(a.fusion.scored_prefixes)),
          std::string(flag_text(b.fusion.scored_prefixes)), &lines);
  changed("fusion: train_beside_generation",
          std::string(flag_text(a.fusion.train_beside_generation)),
          std::string(flag_text(b.fusion.train_beside_generation)), &lines);
  changed("fusion: predicted_lengths", std::string(flag_text(a.fusion.predicted_lengths)),
          std::string(flag_text(b.fusion.predicted_lengths)), &lines);
  changed("fusion: train_beside_scoring", a.fusion.train_beside_scoring,
          b.fusion.train_beside_scoring, &lines);
  changed("fusion: sync_beside_training", std::string(flag_text(a.fusion.sync_beside_training)),
          std::string(flag_text(b.fusion.sync_beside_training)), &lines);
  changed("fusion: seed", a.fusion.seed, b.fusion.seed, &lines);
  changed("fusion: units", a.fusion.units, b.fusion.units, &lines);
  changed("staleness", a.staleness, b.staleness, &lines);
  return lines;
}

}  // namespace braid::inline plan

// Execution plans to JSON and back.
#include "base/text.h"
#include "plan/plan_fields.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

using plan_fields::StrategyField;

Json strategy_value(const StrategyField& field, const Strategy& strategy) {
  switch (field.kind) {
    case StrategyField::Kind::kFlag:
      return field.get(strategy) != 0;
    case StrategyField::Kind::kWord:
    case StrategyField::Kind::kPrecision:
      return plan_fields::value_text(field, strategy);
    case StrategyField::Kind::kNumber:
      break;
  }
  return field.get(strategy);
}

Json call_json(const CallPlan& call) {
  Json json = {{"call", call.call}, {"mesh", mesh_json(call.mesh)}};
  for (const StrategyField& field : plan_fields::strategy_fields())
    json[field.name] = strategy_value(field, call.strategy);
  if (!call.strategy.stage_layers.empty())
    json[plan_fields::kStageLayers] = plan_fields::stage_layers_text(call.strategy);
  return json;
}

Json role_json(const RolePlan& role) {
  return {{"role", role.role.value},
          {"weights", residency_name(role.weights)},
          {"optimizer", residency_name(role.optimizer)},
          {"when", plan_fields::timing_name(role.timing)},
          {"prefetch", role.prefetch}};
}

Status read_field(const Json& json, const StrategyField& field, Strategy* strategy) {
  const Strategy neutral;
  if (field.kind == StrategyField::Kind::kFlag) {
    BRAID_ASSIGN(const bool value, json_field_or<bool>(json, field.name, field.get(neutral) != 0));
    return field.set(*strategy, value ? 1 : 0);
  }
  if (field.kind == StrategyField::Kind::kWord) {
    BRAID_ASSIGN(const std::string text,
                 json_field_or<std::string>(json, field.name, field.words[field.get(neutral)]));
    BRAID_ASSIGN(const int64_t value, plan_fields::parse_word(field, text));
    return field.set(*strategy, value);
  }
  if (field.kind == StrategyField::Kind::kPrecision) {
    BRAID_ASSIGN(const std::string text, json_field_or<std::string>(json, field.name, "model"));
    BRAID_ASSIGN(const int64_t value, plan_fields::parse_precision_field(text));
    return field.set(*strategy, value);
  }
  BRAID_ASSIGN(const int64_t value, json_field_or<int64_t>(json, field.name, field.get(neutral)));
  return field.set(*strategy, value).at(field.name);
}

Result<CallPlan> call_from_json(const Json& json) {
  CallPlan call;
  BRAID_ASSIGN(call.call, json_field<std::string>(json, "call"));
  BRAID_ASSIGN(const Json mesh, json_field<Json>(json, "mesh"));
  BRAID_ASSIGN(call.mesh, mesh_from_json(mesh).at(call.call));
  for (const StrategyField& field : plan_fields::strategy_fields())
    BRAID_TRY(read_field(json, field, &call.strategy).at(call.call));
  BRAID_ASSIGN(const std::string layers,
               json_field_or<std::string>(json, plan_fields::kStageLayers, ""));
  BRAID_ASSIGN(call.strategy.stage_layers, plan_fields::parse_stage_layers(layers).at(call.call));
  return call;
}

Result<Residency> parse_residency(const Json& json, const char* key) {
  BRAID_ASSIGN(const std::string text, json_field_or<std::string>(json, key, "device"));
  for (const Residency value : {Residency::kDevice, Residency::kHost})
    if (text == residency_name(value)) return value;
  return invalid_input(cat(key, " must be device or host, not '", text, "'"));
}

Result<RolePlan> role_from_json(const Json& json) {
  RolePlan role;
  BRAID_ASSIGN(role.role.value, json_field<std::string>(json, "role"));
  BRAID_ASSIGN(role.weights, parse_residency(json, "weights"));
  BRAID_ASSIGN(role.optimizer, parse_residency(json, "optimizer"));
  BRAID_ASSIGN(const std::string when, json_field_or<std::string>(json, "when", "after_last_call"));
  if (when == plan_fields::timing_name(OffloadTiming::kAfterEachCall))
    role.timing = OffloadTiming::kAfterEachCall;
  else if (when != plan_fields::timing_name(OffloadTiming::kAfterLastCall))
    return invalid_input(cat("when must be after_last_call or after_each_call, not '", when, "'"));
  BRAID_ASSIGN(role.prefetch, json_field_or<bool>(json, "prefetch", false));
  return role;
}

Status read_lists(const Json& json, ExecutionPlan* plan) {
  BRAID_ASSIGN(const Json calls, json_field<Json>(json, "calls"));
  BRAID_ASSIGN(const Json roles, json_field_or<Json>(json, "roles", Json::array()));
  if (!calls.is_array() || !roles.is_array())
    return invalid_input("'calls' and 'roles' must be lists");
  for (const Json& item : calls) {
    BRAID_ASSIGN(CallPlan call, call_from_json(item));
    plan->calls.push_back(std::move(call));
  }
  for (const Json& item : roles) {
    BRAID_ASSIGN(RolePlan role, role_from_json(item));
    plan->roles.push_back(std::move(role));
  }
  return ok_status();
}

}  // namespace

Json plan_json(const ExecutionPlan& plan) {
  Json calls = Json::array(), roles = Json::array();
  for (const CallPlan& call : plan.calls) calls.push_back(call_json(call));
  for (const RolePlan& role : plan.roles) roles.push_back(role_json(role));
  Json fusion = {{"train_schedules", plan.fusion.train_schedules},
                 {"migrate_below_samples", plan.fusion.migrate_below_samples},
                 {"migrate_to_samples", plan.fusion.migrate_to_samples},
                 {"migrate_cache", plan.fusion.migrate_cache},
                 {"pre_copy_below_samples", plan.fusion.pre_copy_below_samples},
                 {"scored_prefixes", plan.fusion.scored_prefixes},
                 {"train_beside_generation", plan.fusion.train_beside_generation},
                 {"predicted_lengths", plan.fusion.predicted_lengths},
                 {"train_beside_scoring", plan.fusion.train_beside_scoring},
                 {"sync_beside_training", plan.fusion.sync_beside_training},
                 {"seed", plan.fusion.seed},
                 {"units", plan.fusion.units}};
  if (!plan.fusion.migrate_again_below.empty())
    fusion["migrate_again_below"] = plan.fusion.migrate_again_below;
  return {{"graph", plan.graph}, {"devices", plan.devices}, {"calls", calls},
          {"roles", roles},      {"fusion", fusion},        {"staleness", plan.staleness}};
}

Result<ExecutionPlan> plan_from_json(const Json& json) {
  if (!json.is_object()) return invalid_input("an execution plan must be a JSON object");
  ExecutionPlan plan;
  BRAID_ASSIGN(plan.graph, json_field<std::string>(json, "graph"));
  BRAID_ASSIGN(plan.devices, json_field<int>(json, "devices"));
  BRAID_TRY(read_lists(json, &plan));
  BRAID_ASSIGN(const Json fusion, json_field_or<Json>(json, "fusion", Json::object()));
  BRAID_ASSIGN(plan.fusion.train_schedules, json_field_or<bool>(fusion, "train_schedules", false));
  BRAID_ASSIGN(plan.fusion.migrate_below_samples,
               json_field_or<int64_t>(fusion, "migrate_below_samples", 0));
  BRAID_ASSIGN(plan.fusion.migrate_again_below,
               json_field_or<std::vector<int64_t>>(fusion, "migrate_again_below", {}));
  BRAID_ASSIGN(plan.fusion.migrate_to_samples,
               json_field_or<int64_t>(fusion, "migrate_to_samples", 0));
  BRAID_ASSIGN(plan.fusion.migrate_cache, json_field_or<bool>(fusion, "migrate_cache", true));
  BRAID_ASSIGN(plan.fusion.pre_copy_below_samples,
               json_field_or<int64_t>(fusion, "pre_copy_below_samples", 0));
  BRAID_ASSIGN(plan.fusion.scored_prefixes, json_field_or<bool>(fusion, "scored_prefixes", false));
  BRAID_ASSIGN(plan.fusion.train_beside_generation,
               json_field_or<bool>(fusion, "train_beside_generation", false));
  BRAID_ASSIGN(plan.fusion.predicted_lengths,
               json_field_or<bool>(fusion, "predicted_lengths", false));
  BRAID_ASSIGN(plan.fusion.train_beside_scoring,
               json_field_or<int64_t>(fusion, "train_beside_scoring", 0));
  BRAID_ASSIGN(plan.fusion.sync_beside_training,
               json_field_or<bool>(fusion, "sync_beside_training", false));
  BRAID_ASSIGN(plan.fusion.seed, json_field_or<int64_t>(fusion, "seed", Fusion().seed));
  BRAID_ASSIGN(plan.fusion.units, json_field_or<int64_t>(fusion, "units", Fusion().units));
  BRAID_ASSIGN(plan.staleness, json_field_or<int64_t>(json, "staleness", 0));
  return plan;
}

}  // namespace braid::inline plan

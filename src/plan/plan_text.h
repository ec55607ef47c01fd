// Execution plans as YAML that a person edits, as JSON, and the differences of two. Printing and
// parsing are inverse: parse_plan(plan_to_yaml(p)) == p. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/yaml.h"
#include "plan/execution_plan.h"

namespace braid::inline plan {

// Devices as "0-7", "0,2,4", "0-3,8-11", "0-28/4" (each fourth), and, where the cluster is known,
// "node 1", "nodes 0-3", "node 1: 0-3" (devices counted inside the node) and "all". Errors: what a
// mesh may look like.
Result<DeviceMesh> parse_mesh(const std::string& text, const Cluster* cluster);
// The mesh of a YAML value: such a text, or a list of devices and ranges in order ([1, 0],
// [0-3, 8]). `devices` is how many "all" means where no cluster is known; 0: nobody says it. Errors
// begin with the value's place and `key`.
Result<DeviceMesh> read_mesh(const YamlNode& node, const std::string& key, const Cluster* cluster,
                             int devices = 0);
// The shortest form of numbers: "0-7,12".
std::string mesh_text(const DeviceMesh& mesh);

// fusion.migrate_below_samples: a number, auto, or a list of numbers ("[64, 16]").
std::string migration_text(const Fusion& fusion);

// One line per call and role; fields with neutral values are left out. With a cluster of equal
// nodes `devices` says them ("8x8"), so that a reader without the cluster knows nodes by name.
std::string plan_to_yaml(const ExecutionPlan& plan, const Cluster* cluster = nullptr);
// `where` names the file; `cluster` may be null: nodes are then those that the plan states
// ("devices: 8x8"), or meshes are device numbers. Errors name
// file:line, the key and what it takes; whether the plan is legal for a problem is validate()'s
// question.
Result<ExecutionPlan> parse_plan(std::string_view text, const std::string& where,
                                 const Cluster* cluster = nullptr);

// The nodes that a plan states ("devices: 8x8"), of this machine's kind; none where it states a
// number.
Result<std::optional<Cluster>> stated_nodes(std::string_view text, const std::string& where);

Json plan_json(const ExecutionPlan& plan);
Result<ExecutionPlan> plan_from_json(const Json& json);

// "dp4 tp2 pp1 sp zero1 recompute=full micro_batches=8": what a strategy says beyond the neutral.
std::string strategy_text(const Strategy& strategy);
const char* recompute_name(Recompute recompute);
const char* residency_name(Residency residency);

// One readable line per difference ("update_actor: tp 2 -> 4"), empty for equal plans.
std::vector<std::string> diff(const ExecutionPlan& a, const ExecutionPlan& b);

}  // namespace braid::inline plan

// Execution plans to YAML and back.
#include "plan/plan_text.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "base/yaml_check.h"
#include "dataflow/yaml_quoted.h"
#include "plan/plan_fields.h"

namespace braid::inline plan {
namespace {

using plan_fields::StrategyField;

Result<int64_t> read_number(const YamlNode& node, const std::string& where) {
  int64_t value = 0;
  constexpr int64_t kLargest = int64_t{1} << 40;
  if (node.kind != YamlNode::Kind::kScalar || !parse_int(node.scalar, &value) || value > kLargest ||
      value < -kLargest)
    return wrong_value(node, cat(where, " must be a whole number, not '", node.scalar, "'"));
  return value;
}

Result<bool> read_flag(const YamlNode& node, const std::string& where) {
  bool value = false;
  if (node.kind != YamlNode::Kind::kScalar || !parse_bool(node.scalar, &value))
    return wrong_value(node, cat(where, " must be true or false, not '", node.scalar, "'"));
  return value;
}

Status read_strategy_field(const YamlNode& node, const std::string& where,
                           const StrategyField& field, Strategy* strategy) {
  if (field.kind == StrategyField::Kind::kFlag) {
    BRAID_ASSIGN(const bool value, read_flag(node, where));
    return field.set(*strategy, value ? 1 : 0);
  }
  if (field.kind == StrategyField::Kind::kWord) {
    const auto value = plan_fields::parse_word(field, node.scalar);
    if (value.ok()) return field.set(*strategy, *value);
    return wrong_value(
        node, cat(where, " must be ", plan_fields::words_text(field), ", not '", node.scalar, "'"));
  }
  if (field.kind == StrategyField::Kind::kPrecision) {
    const auto value = plan_fields::parse_precision_field(node.scalar);
    if (!value.ok()) return wrong_value(node, cat(where, ": ", value.status().message()));
    return field.set(*strategy, *value);
  }
  BRAID_ASSIGN(const int64_t value, read_number(node, where));
  return field.set(*strategy, value).at(cat(node.origin, ": ", where));
}

// A comma ends a value inside braces: "mesh: 0,2" without quotes reads as a mesh and a key '2'.
Status check_quotes(const YamlNode& node, const std::string& where) {
  for (const auto& [key, value] : node.map)
    if (!key.empty() && key.find_first_not_of("0123456789- ") == std::string::npos)
      return wrong_value(value, cat(where, "mesh: a list of devices needs quotes, such as mesh: ",
                                    "\"0-3,", trim(key), "\""));
  return ok_status();
}

Result<std::vector<int64_t>> read_stage_layers(const YamlNode& node, const std::string& call) {
  const std::string where = cat("calls.", call);
  if (const auto text = plan_fields::items_text(node))
    return plan_fields::parse_stage_layers(*text).at(cat(node.origin, ": ", where));
  return wrong_value(node, cat(where, ".", plan_fields::kStageLayers,
                               " must be the layers of each stage, such as [5, 6, 6, 5]; leave it "
                               "out for even stages"));
}

// How a plan's meshes name devices.
struct MeshNames {
  const Cluster* cluster = nullptr;  // null: only numbers and `all`
  int devices = 0;
};

Result<CallPlan> read_call(const std::string& name, const YamlNode& node, const MeshNames& names) {
  const std::string where = cat("calls.", name, ".");
  BRAID_TRY(require_map(node, cat("calls.", name)));
  std::vector<std::string> keys = {"mesh", plan_fields::kStageLayers};
  for (const StrategyField& field : plan_fields::strategy_fields()) keys.push_back(field.name);
  BRAID_TRY(check_quotes(node, where));
  BRAID_TRY(require_known_keys(node, where, keys));
  CallPlan call;
  call.call = name;
  const YamlNode* mesh = node.find("mesh");
  if (mesh == nullptr)
    return wrong_value(node, cat(where, "mesh is missing; write devices such as 0-7"));
  BRAID_ASSIGN(call.mesh, read_mesh(*mesh, where + "mesh", names.cluster, names.devices));
  for (const StrategyField& field : plan_fields::strategy_fields())
    if (const YamlNode* value = node.find(field.name))
      BRAID_TRY(read_strategy_field(*value, where + field.name, field, &call.strategy));
  if (const YamlNode* layers = node.find(plan_fields::kStageLayers)) {
    BRAID_ASSIGN(call.strategy.stage_layers, read_stage_layers(*layers, name));
  }
  return call;
}

Result<Residency> read_residency(const YamlNode* node, const std::string& where) {
  if (node == nullptr) return Residency::kDevice;
  for (const Residency value : {Residency::kDevice, Residency::kHost})
    if (node->scalar == residency_name(value)) return value;
  return wrong_value(*node, cat(where, " must be device or host, not '", node->scalar, "'"));
}

Result<RolePlan> read_role(const std::string& name, const YamlNode& node) {
  const std::string where = cat("roles.", name, ".");
  BRAID_TRY(require_map(node, cat("roles.", name)));
  BRAID_TRY(require_known_keys(node, where, {"weights", "optimizer", "when", "prefetch"}));
  RolePlan role;
  role.role = RoleId{name};
  BRAID_ASSIGN(role.weights, read_residency(node.find("weights"), where + "weights"));
  BRAID_ASSIGN(role.optimizer, read_residency(node.find("optimizer"), where + "optimizer"));
  if (const YamlNode* when = node.find("when")) {
    if (when->scalar == plan_fields::timing_name(OffloadTiming::kAfterEachCall))
      role.timing = OffloadTiming::kAfterEachCall;
    else if (when->scalar != plan_fields::timing_name(OffloadTiming::kAfterLastCall))
      return wrong_value(*when, cat(where, "when must be after_last_call or after_each_call, not '",
                                    when->scalar, "'"));
  }
  if (const YamlNode* prefetch = node.find("prefetch")) {
    BRAID_ASSIGN(role.prefetch, read_flag(*prefetch, where + "prefetch"));
  }
  return role;
}

Status read_calls(const YamlNode& node, const MeshNames& names, ExecutionPlan* plan) {
  BRAID_TRY(require_map(node, "calls"));
  for (const auto& [name, value] : node.map) {
    BRAID_ASSIGN(CallPlan call, read_call(name, value, names));
    plan->calls.push_back(std::move(call));
  }
  return ok_status();
}

Status read_roles(const YamlNode& node, ExecutionPlan* plan) {
  BRAID_TRY(require_map(node, "roles"));
  for (const auto& [name, value] : node.map) {
    BRAID_ASSIGN(RolePlan role, read_role(name, value));
    plan->roles.push_back(std::move(role));
  }
  return ok_status();
}

// A number of samples, auto, or a list of numbers.
Status read_migration(const YamlNode& node, Fusion* fusion) {
  const std::string where = "fusion.migrate_below_samples";
  std::vector<int64_t> numbers;
  const bool is_list = node.kind == YamlNode::Kind::kList;
  if (!is_list && node.kind == YamlNode::Kind::kScalar && node.scalar == "auto") {
    fusion->migrate_below_samples = kAutoMigration;
    return ok_status();
  }
  for (const YamlNode& each : is_list ? node.list : std::vector<YamlNode>{node}) {
    BRAID_ASSIGN(const int64_t number, read_number(each, where));
    if (number < 0 || (is_list && number == 0))
      return wrong_value(
          each, cat(where, is_list ? " must be a list of numbers of samples, the largest first"
                                   : " must be a number of samples, a list of them, 0 or auto"));
    numbers.push_back(number);
  }
  if (numbers.empty()) return wrong_value(node, cat(where, " must not be empty"));
  fusion->migrate_below_samples = numbers.front();
  fusion->migrate_again_below.assign(numbers.begin() + 1, numbers.end());
  return ok_status();
}

Status read_fusion(const YamlNode& node, Fusion* fusion) {
  BRAID_TRY(require_map(node, "fusion"));
  BRAID_TRY(require_known_keys(
      node, "fusion.",
      {"train_schedules", "migrate_below_samples", "migrate_to_samples", "migrate_cache",
       "pre_copy_below_samples", "scored_prefixes", "train_beside_generation", "predicted_lengths",
       "train_beside_scoring", "sync_beside_training", "seed", "units"}));
  if (const YamlNode* value = node.find("train_schedules")) {
    BRAID_ASSIGN(fusion->train_schedules, read_flag(*value, "fusion.train_schedules"));
  }
  if (const YamlNode* value = node.find("migrate_below_samples"))
    BRAID_TRY(read_migration(*value, fusion));
  if (const YamlNode* value = node.find("migrate_to_samples")) {
    BRAID_ASSIGN(fusion->migrate_to_samples, read_number(*value, "fusion.migrate_to_samples"));
  }
  if (const YamlNode* value = node.find("migrate_cache")) {
    BRAID_ASSIGN(fusion->migrate_cache, read_flag(*value, "fusion.migrate_cache"));
  }
  if (const YamlNode* value = node.find("pre_copy_below_samples")) {
    BRAID_ASSIGN(fusion->pre_copy_below_samples,
                 read_number(*value, "fusion.pre_copy_below_samples"));
  }
  if (const YamlNode* value = node.find("scored_prefixes")) {
    BRAID_ASSIGN(fusion->scored_prefixes, read_flag(*value, "fusion.scored_prefixes"));
  }
  if (const YamlNode* value = node.find("train_beside_generation")) {
    BRAID_ASSIGN(fusion->train_beside_generation,
                 read_flag(*value, "fusion.train_beside_generation"));
  }
  if (const YamlNode* value = node.find("predicted_lengths")) {
    BRAID_ASSIGN(fusion->predicted_lengths, read_flag(*value, "fusion.predicted_lengths"));
  }
  if (const YamlNode* value = node.find("train_beside_scoring")) {
    BRAID_ASSIGN(fusion->train_beside_scoring, read_number(*value, "fusion.train_beside_scoring"));
  }
  if (const YamlNode* value = node.find("sync_beside_training")) {
    BRAID_ASSIGN(fusion->sync_beside_training, read_flag(*value, "fusion.sync_beside_training"));
  }
  if (const YamlNode* value = node.find("seed")) {
    BRAID_ASSIGN(fusion->seed, read_number(*value, "fusion.seed"));
  }
  if (const YamlNode* value = node.find("units")) {
    BRAID_ASSIGN(fusion->units, read_number(*value, "fusion.units"));
  }
  return ok_status();
}

// "64", or "8x8": nodes x devices of each.
struct DeviceCount {
  int64_t nodes = 0;  // 0: not said
  int64_t total = 0;
};

Result<DeviceCount> read_devices(const YamlNode& node) {
  const size_t cross = node.scalar.find('x');
  DeviceCount count;
  int64_t each = 0;
  if (cross == std::string::npos) {
    BRAID_ASSIGN(count.total, read_number(node, "devices"));
  } else if (parse_int(node.scalar.substr(0, cross), &count.nodes) &&
             parse_int(node.scalar.substr(cross + 1), &each) && each >= 1 &&
             each <= kMaxDevicesPerNode && count.nodes >= 1 &&
             count.nodes <= plan_fields::kMaxDevices) {
    count.total = count.nodes * each;
  } else {
    return wrong_value(node, cat("devices must be a number or nodes x devices such as 8x8, not '",
                                 node.scalar, "'"));
  }
  if (count.total < 1 || count.total > plan_fields::kMaxDevices)
    return wrong_value(
        node, cat("devices must be 1 to ", plan_fields::kMaxDevices, ", is ", count.total));
  return count;
}

// Nodes by which meshes may be named when no cluster is at hand: their sizes matter, not their
// devices. Nothing when the plan does not say them.
Result<std::optional<Cluster>> stated_nodes(const DeviceCount& count) {
  if (count.nodes == 0) return std::optional<Cluster>();
  BRAID_ASSIGN(const GpuSpec any, find_gpu("this-machine"));
  BRAID_ASSIGN(const Cluster cluster, make_cluster(any, static_cast<int>(count.nodes),
                                                   static_cast<int>(count.total / count.nodes)));
  return std::optional(cluster);
}

Status read_plan(const YamlNode& root, const Cluster* cluster, ExecutionPlan* plan) {
  BRAID_TRY(
      require_known_keys(root, "", {"graph", "devices", "calls", "roles", "fusion", "staleness"}));
  const YamlNode *graph = root.find("graph"), *devices = root.find("devices");
  if (graph == nullptr || graph->kind != YamlNode::Kind::kScalar)
    return wrong_value(root, "graph is missing; name the algorithm that the plan is for");
  if (devices == nullptr)
    return wrong_value(root, "devices is missing; say how many the cluster has");
  plan->graph = graph->scalar;
  BRAID_ASSIGN(const DeviceCount count, read_devices(*devices));
  plan->devices = static_cast<int>(count.total);
  BRAID_ASSIGN(const std::optional<Cluster> stated, stated_nodes(count));
  if (cluster == nullptr && stated) cluster = &*stated;
  const MeshNames names{cluster, plan->devices};
  if (const YamlNode* node = root.find("calls")) BRAID_TRY(read_calls(*node, names, plan));
  if (const YamlNode* node = root.find("roles")) BRAID_TRY(read_roles(*node, plan));
  if (const YamlNode* node = root.find("fusion")) BRAID_TRY(read_fusion(*node, &plan->fusion));
  if (const YamlNode* node = root.find("staleness")) {
    BRAID_ASSIGN(plan->staleness, read_number(*node, "staleness"));
  }
  return ok_status();
}

std::string quoted_if_needed(const std::string& text) {
  const bool plain = text.find_first_of(":,#{}[]&*!|>'\"%@` ") == std::string::npos &&
                     !text.empty() && text[0] != '-';
  if (plain) return text;
  return yaml_quoted(text);
}

std::string call_line(const CallPlan& call) {
  std::string out = cat("mesh: ", quoted_if_needed(mesh_text(call.mesh)));
  const Strategy neutral;
  for (const StrategyField& field : plan_fields::strategy_fields())
    if (field.always_shown || field.get(call.strategy) != field.get(neutral))
      out += cat(", ", field.name, ": ", plan_fields::value_text(field, call.strategy));
  if (!call.strategy.stage_layers.empty())
    out += cat(", ", plan_fields::kStageLayers, ": ",
               quoted_if_needed(plan_fields::stage_layers_text(call.strategy)));
  return cat("{", out, "}");
}

std::string devices_text(int devices, const Cluster* cluster) {
  if (cluster == nullptr || device_count(*cluster) != devices) return cat(devices);
  const int each = cluster->nodes.front().devices;
  for (const Node& node : cluster->nodes)
    if (node.devices != each) return cat(devices);
  return cat(cluster->nodes.size(), "x", each);
}

std::string role_line(const RolePlan& role) {
  std::vector<std::string> parts;
  if (role.weights != Residency::kDevice)
    parts.push_back(cat("weights: ", residency_name(role.weights)));
  if (role.optimizer != Residency::kDevice)
    parts.push_back(cat("optimizer: ", residency_name(role.optimizer)));
  if (role.timing != OffloadTiming::kAfterLastCall)
    parts.push_back(cat("when: ", plan_fields::timing_name(role.timing)));
  if (role.prefetch) parts.push_back("prefetch: true");
  return cat("{", join(parts, ", "), "}");
}

}  // namespace

std::string migration_text(const Fusion& fusion) {
  const int64_t below = fusion.migrate_below_samples;
  std::string out = below == kAutoMigration ? "auto" : std::to_string(below);
  for (const int64_t again : fusion.migrate_again_below) out += cat(", ", again);
  return fusion.migrate_again_below.empty() ? out : cat("[", out, "]");
}

std::string plan_to_yaml(const ExecutionPlan& plan, const Cluster* cluster) {
  std::string out = cat("graph: ", quoted_if_needed(plan.graph),
                        "\ndevices: ", devices_text(plan.devices, cluster), "\n");
  if (!plan.calls.empty()) out += "calls:\n";
  for (const CallPlan& call : plan.calls)
    out += cat("  ", quoted_if_needed(call.call), ": ", call_line(call), "\n");
  if (!plan.roles.empty()) out += "roles:\n";
  for (const RolePlan& role : plan.roles)
    out += cat("  ", quoted_if_needed(role.role.value), ": ", role_line(role), "\n");
  if (plan.fusion != Fusion{})
    out += cat("fusion: {train_schedules: ", plan.fusion.train_schedules ? "true" : "false",
               ", migrate_below_samples: ", migration_text(plan.fusion),
               plan.fusion.migrate_to_samples > 0
                   ? cat(", migrate_to_samples: ", plan.fusion.migrate_to_samples)
                   : "",
               plan.fusion.migrate_cache ? "" : ", migrate_cache: false",
               plan.fusion.pre_copy_below_samples > 0
                   ? cat(", pre_copy_below_samples: ", plan.fusion.pre_copy_below_samples)
                   : "",
               plan.fusion.scored_prefixes ? ", scored_prefixes: true" : "",
               plan.fusion.train_beside_generation ? ", train_beside_generation: true" : "",
               plan.fusion.predicted_lengths ? ", predicted_lengths: true" : "",
               plan.fusion.train_beside_scoring > 0
                   ? cat(", train_beside_scoring: ", plan.fusion.train_beside_scoring)
                   : "",
               plan.fusion.sync_beside_training ? ", sync_beside_training: true" : "",
               ", seed: ", plan.fusion.seed, ", units: ", plan.fusion.units, "}\n");
  if (plan.staleness != 0) out += cat("staleness: ", plan.staleness, "\n");
  return out;
}

Result<std::optional<Cluster>> stated_nodes(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  const YamlNode* const devices = root.find("devices");
  if (devices == nullptr) return std::optional<Cluster>();
  BRAID_ASSIGN(const DeviceCount count, read_devices(*devices));
  return stated_nodes(count);
}

Result<ExecutionPlan> parse_plan(std::string_view text, const std::string& where,
                                 const Cluster* cluster) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  if (root.kind != YamlNode::Kind::kMap || root.map.empty())
    return invalid_input(cat(where, ": an execution plan must be a map with graph and devices"));
  ExecutionPlan plan;
  BRAID_TRY(read_plan(root, cluster, &plan));
  return plan;
}

std::ostream& operator<<(std::ostream& out, const ExecutionPlan& plan) {
  return out << plan_to_yaml(plan);
}

}  // namespace braid::inline plan

// plan.file, placement and parallel: what a configuration fixes of a plan.
#include <algorithm>

#include "base/text.h"
#include "base/yaml_check.h"
#include "plan/make_problem.h"
#include "plan/placement.h"
#include "plan/plan_fields.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline plan {
namespace {

using plan_fields::StrategyField;
using Values = std::map<std::string, int64_t>;

const StrategyField* find_field(const std::string& name) {
  for (const StrategyField& field : plan_fields::strategy_fields())
    if (name == field.name) return &field;
  return nullptr;
}

// Whether a field that is said for all calls means something for one of this kind.
bool applies(const std::string& field, CallKind kind) {
  const bool trains = kind == CallKind::kTrainStep, samples = kind == CallKind::kGenerate;
  if (field == "kv_budget_tokens" || field == "max_concurrent") return samples;
  if (field == "interleave" || field == "schedule" || field == "recompute" || field == "zero" ||
      field == "zero_ranks")
    return trains;
  if (field == "micro_batches" || field == "micro_tokens" || field == "sequence_parallel" ||
      field == "in_order" || field == "cp")
    return !samples;
  return true;
}

Result<int64_t> read_value(const YamlNode& node, const std::string& where,
                           const StrategyField& field) {
  bool flag = false;
  int64_t number = 0;
  if (field.kind == StrategyField::Kind::kFlag && parse_bool(node.scalar, &flag)) return flag;
  if (field.kind == StrategyField::Kind::kWord)
    if (const auto value = plan_fields::parse_word(field, node.scalar); value.ok()) return *value;
  if (field.kind == StrategyField::Kind::kPrecision)
    if (const auto value = plan_fields::parse_precision_field(node.scalar); value.ok())
      return *value;
  Strategy scratch;
  if (field.kind == StrategyField::Kind::kNumber && node.kind == YamlNode::Kind::kScalar &&
      parse_int(node.scalar, &number)) {
    BRAID_TRY(field.set(scratch, number).at(cat(node.origin, ": ", where)));
    return number;
  }
  const std::string wants =
      field.kind == StrategyField::Kind::kFlag        ? "true or false"
      : field.kind == StrategyField::Kind::kWord      ? plan_fields::words_text(field)
      : field.kind == StrategyField::Kind::kPrecision ? "bf16, fp16, fp8 or model"
                                                      : "a whole number";
  return wrong_value(node, cat(where, " must be ", wants, ", is '", node.scalar, "'"));
}

// The fields of one map of `parallel`; entries that are maps themselves are calls or roles.
Result<Values> read_values(const YamlNode& node, const std::string& where, bool nested) {
  std::vector<std::string> known;
  for (const StrategyField& field : plan_fields::strategy_fields()) known.push_back(field.name);
  Values values;
  for (const auto& [name, value] : node.map) {
    const StrategyField* field = find_field(name);
    if (field == nullptr && !nested && value.kind == YamlNode::Kind::kMap) continue;
    if (field == nullptr)
      return wrong_value(value, cat("unknown key '", where, name, "'", did_you_mean(name, known),
                                    "; keys here: ", join(known, ", "),
                                    nested ? "" : ", or a call or role with such keys"));
    if (value.scalar == "auto") continue;
    BRAID_ASSIGN(values[name], read_value(value, where + name, *field));
  }
  return values;
}

Status check_names(const YamlNode& node, const Graph& graph) {
  for (const auto& [name, value] : node.map) {
    if (value.kind != YamlNode::Kind::kMap) continue;
    const Call* call = find_call(graph, name);
    if ((call != nullptr && uses_model(*call)) || find_role(graph, RoleId{name}) != nullptr)
      continue;
    return wrong_value(value, cat("parallel.", name, ": graph ", graph.name,
                                  " has no such role, and no call of this name with a model"));
  }
  return ok_status();
}

Result<std::map<std::string, Values>> read_parallel(const YamlNode& node, const Graph& graph) {
  std::map<std::string, Values> out;
  if (node.kind == YamlNode::Kind::kNull || node.scalar == "auto") return out;
  if (node.kind != YamlNode::Kind::kMap)
    return wrong_value(node, cat("parallel must be auto or a map such as {dp: 4, tp: 2}"));
  BRAID_TRY(check_names(node, graph));
  BRAID_ASSIGN(const Values common, read_values(node, "parallel.", false));
  for (const Call& call : graph.calls) {
    if (!uses_model(call)) continue;
    Values& values = out[call.name];
    for (const auto& [field, value] : common)
      if (applies(field, call.kind)) values[field] = value;
    for (const std::string& name : {call.role.value, call.name}) {
      const YamlNode* own = node.find(name);
      if (own == nullptr) continue;
      const bool is_role = name == call.role.value;
      BRAID_ASSIGN(const Values special, read_values(*own, cat("parallel.", name, "."), true));
      for (const auto& [field, value] : special)
        if (!is_role || applies(field, call.kind)) values[field] = value;
    }
    if (values.empty()) out.erase(call.name);
  }
  return out;
}

bool is_size(const std::string& field) {
  return field == "dp" || field == "cp" || field == "tp" || field == "pp";
}

int64_t product_of(const Values& values) {
  int64_t product = 1;
  for (const auto& [field, value] : values)
    if (is_size(field)) product *= value;
  return product;
}

// dp x cp x tp x pp of `parallel` against the mesh of `placement`.
Status check_agreement(const PlanConstraints& constraints) {
  for (const auto& [call, mesh] : constraints.meshes) {
    const auto found = constraints.strategies.find(call);
    if (found == constraints.strategies.end()) continue;
    const int64_t product = product_of(found->second);
    const auto devices = static_cast<int64_t>(mesh.devices.size());
    const bool complete =
        found->second.count("dp") && found->second.count("tp") && found->second.count("pp");
    if (complete ? product != devices : product < 1 || devices % product != 0)
      return invalid_input(cat("placement and parallel disagree on call ", call, ": ", devices,
                               " devices (", mesh_text(mesh), ") against sizes of ", product,
                               "; change one of them"));
  }
  return ok_status();
}

// The strategy of stated values; an absent dp fills the mesh.
Strategy filled(const Values& values, int64_t devices) {
  Strategy strategy;
  for (const auto& [name, value] : values)
    BRAID_CHECK(find_field(name)->set(strategy, value).ok(), "checked when it was read");
  const int64_t others = int64_t{strategy.tp} * strategy.pp * strategy.cp;
  if (values.count("dp") == 0 && others > 0)
    strategy.dp = static_cast<int>(std::max<int64_t>(1, devices / others));
  return strategy;
}

}  // namespace

CallUnits units_of(const std::map<std::string, Values>& strategies) {
  CallUnits units;
  for (const auto& [call, values] : strategies)
    units[call] = std::max<int64_t>(1, product_of(values));
  return units;
}

Result<PlanConstraints> constraints_by_seconds(const Config& config, const PlanningProblem& problem,
                                               const ReadText& read, const MeshSeconds& seconds) {
  PlanConstraints out;
  BRAID_ASSIGN(out.strategies, read_parallel(config.parallel, problem.graph));
  BRAID_ASSIGN(out.meshes,
               read_placement(config.placement, problem,
                              {units_of(out.strategies), seconds, config.plan.staleness > 0}));
  BRAID_TRY(check_agreement(out));
  if (config.plan.file.empty()) return out;
  BRAID_ASSIGN(const std::string text, read(config.plan.file).at("plan.file"));
  BRAID_ASSIGN(out.file, parse_plan(text, config.plan.file, &problem.cluster));
  BRAID_TRY(validate(*out.file, problem).at(config.plan.file));
  PlanConstraints others{{}, out.meshes, out.strategies};
  BRAID_TRY(satisfies(*out.file, others).at(cat(config.plan.file, " disagrees with the config")));
  return out;
}

Result<PlanConstraints> plan_constraints(const Config& config, const PlanningProblem& problem,
                                         const ReadText& read) {
  return constraints_by_seconds(config, problem, read, MeshSeconds());
}

Result<int> devices_stated(const Config& config, const Graph& graph) {
  constexpr int64_t kMost = 1024;  // processes of one machine; more are a mistake
  int64_t devices = 1;
  BRAID_ASSIGN(const auto strategies, read_parallel(config.parallel, graph));
  for (const auto& [call, values] : strategies) {
    int64_t product = 1;  // kept small, since sizes are any numbers
    for (const auto& [field, value] : values)
      if (is_size(field)) product = std::min(product * std::min(value, kMost + 1), kMost + 1);
    if (product > kMost)
      return invalid_input(cat("parallel: call ", call, " takes more than ", kMost,
                               " processes of this machine; say in cluster what there is"));
    devices = std::max(devices, product);
  }
  if (config.placement.kind == YamlNode::Kind::kMap)
    for (const auto& [name, value] : config.placement.map)
      // "all" and nodes need a cluster: what is wrong with them, and with numbers beyond all
      // processes, is said where the placement is read.
      if (const auto mesh = read_mesh(value, name, nullptr); mesh.ok())
        for (const DeviceId device : mesh->devices)
          if (device.value < kMost) devices = std::max(devices, int64_t{device.value} + 1);
  return static_cast<int>(devices);
}

Status satisfies(const ExecutionPlan& plan, const PlanConstraints& constraints) {
  if (constraints.file) {
    const std::vector<std::string> lines = diff(*constraints.file, plan);
    if (!lines.empty()) return invalid_input(cat("not the plan of plan.file: ", lines.front()));
  }
  for (const auto& [call, mesh] : constraints.meshes)
    if (!(call_plan(plan, call).mesh == mesh))
      return invalid_input(cat("call ", call, ": mesh ", mesh_text(call_plan(plan, call).mesh),
                               ", but placement says ", mesh_text(mesh), "; remove one of them"));
  for (const auto& [call, values] : constraints.strategies)
    for (const auto& [name, value] : values) {
      const StrategyField& field = *find_field(name);
      const Strategy& strategy = call_plan(plan, call).strategy;
      Strategy wanted = strategy;
      BRAID_TRY(field.set(wanted, value));
      if (wanted != strategy)
        return invalid_input(cat("call ", call, ": ", name, " ",
                                 plan_fields::value_text(field, strategy), ", but parallel says ",
                                 plan_fields::value_text(field, wanted), "; remove one of them"));
    }
  return ok_status();
}

Result<std::optional<ExecutionPlan>> configured_plan(const Config& config,
                                                     const PlanningProblem& problem,
                                                     const ReadText& read) {
  BRAID_ASSIGN(const PlanConstraints constraints, plan_constraints(config, problem, read));
  if (constraints.empty()) return std::optional<ExecutionPlan>();
  if (constraints.file && config.plan.staleness > 0 &&
      config.plan.staleness != constraints.file->staleness)
    return invalid_input(cat("plan.staleness: ", config.plan.staleness, ", but ", config.plan.file,
                             " says ", constraints.file->staleness, "; remove one of them"));
  if (constraints.file) return constraints.file;
  ExecutionPlan plan = plan_for(problem);
  plan.staleness = config.plan.staleness;
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    const auto mesh = constraints.meshes.find(call.name);
    const auto values = constraints.strategies.find(call.name);
    CallPlan entry{call.name,
                   mesh == constraints.meshes.end() ? whole_cluster(problem.cluster) : mesh->second,
                   {}};
    entry.strategy = filled(values == constraints.strategies.end() ? Values() : values->second,
                            static_cast<int64_t>(entry.mesh.devices.size()));
    plan.calls.push_back(std::move(entry));
  }
  BRAID_TRY(validate(plan, problem).at("placement and parallel"));
  return std::optional(plan);
}

}  // namespace braid::inline plan

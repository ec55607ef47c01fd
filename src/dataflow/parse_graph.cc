#include "dataflow/parse_graph.h"

#include <algorithm>

#include "base/text.h"
#include "base/yaml.h"
#include "base/yaml_check.h"
#include "dataflow/yaml_quoted.h"

namespace braid::inline dataflow {
namespace {

constexpr CallKind kKinds[] = {CallKind::kFetch,  CallKind::kGenerate, CallKind::kInfer,
                               CallKind::kReward, CallKind::kCompute,  CallKind::kTrainStep,
                               CallKind::kFollow, CallKind::kSelect};

struct NamedType {
  const char* name;
  FieldType type;
};
constexpr NamedType kTypes[] = {{"tokens", FieldType::kTokens},
                                {"real", FieldType::kReal},
                                {"flag", FieldType::kFlag},
                                {"count", FieldType::kCount}};

const char* shape_name(FieldShape shape) {
  return shape == FieldShape::kPerToken ? "per_token" : "per_sample";
}

Result<bool> read_flag(const YamlNode& map, const char* key, const std::string& where) {
  const YamlNode* node = map.find(key);
  bool value = false;
  if (node == nullptr) return false;
  if (!parse_bool(node->scalar, &value))
    return wrong_value(*node, cat(where, key, " must be true or false, not '", node->scalar, "'"));
  return value;
}

std::string read_text(const YamlNode& map, const char* key) {
  const YamlNode* node = map.find(key);
  return node == nullptr ? "" : node->scalar;
}

Result<RoleSpec> read_role(const std::string& name, const YamlNode& node) {
  const std::string where = cat("roles.", name, ".");
  RoleSpec role;
  role.role = RoleId{name};
  if (node.kind == YamlNode::Kind::kNull) return role;
  BRAID_TRY(require_map(node, cat("roles.", name)));
  BRAID_TRY(
      require_known_keys(node, where, {"trained", "scalar_head", "value_head", "weights_from"}));
  BRAID_ASSIGN(role.trained, read_flag(node, "trained", where));
  BRAID_ASSIGN(role.scalar_head, read_flag(node, "scalar_head", where));
  BRAID_ASSIGN(role.value_head, read_flag(node, "value_head", where));
  role.weights_from = RoleId{read_text(node, "weights_from")};
  return role;
}

Result<CallKind> read_kind(const YamlNode& node, const std::string& where) {
  const YamlNode* kind = node.find("kind");
  std::vector<std::string> names;
  for (const CallKind candidate : kKinds) {
    if (kind != nullptr && kind->scalar == call_kind_name(candidate)) return candidate;
    names.push_back(call_kind_name(candidate));
  }
  if (kind == nullptr)
    return wrong_value(node, cat(where, "kind is missing; one of ", join(names, ", ")));
  return wrong_value(*kind, cat(where, "kind: '", kind->scalar, "' is not one of ",
                                join(names, ", "), did_you_mean(kind->scalar, names)));
}

Result<Field> read_field(const std::string& name, const YamlNode& node, const std::string& where) {
  Field field{name, FieldType::kReal, FieldShape::kPerToken};
  if (node.kind == YamlNode::Kind::kNull) return field;
  const std::vector<std::string> words = split(node.scalar, ' ');
  bool typed = false, shaped = false;
  if (words.size() == 2) {
    for (const NamedType& entry : kTypes)
      if (words[0] == entry.name) field.type = entry.type, typed = true;
    for (const FieldShape shape : {FieldShape::kPerSample, FieldShape::kPerToken})
      if (words[1] == shape_name(shape)) field.shape = shape, shaped = true;
  }
  if (typed && shaped) return field;
  return wrong_value(node,
                     cat(where, name, ": '", node.scalar,
                         "' must be tokens, real, flag or count, then per_token or per_sample"));
}

Status read_writes(const YamlNode& node, const std::string& where, Call* call) {
  if (node.kind == YamlNode::Kind::kList) {
    for (const YamlNode& item : node.list)
      call->writes.push_back({item.scalar, FieldType::kReal, FieldShape::kPerToken});
    return ok_status();
  }
  BRAID_TRY(require_map(node, where));
  for (const auto& [name, value] : node.map) {
    BRAID_ASSIGN(const Field field, read_field(name, value, where + "."));
    call->writes.push_back(field);
  }
  return ok_status();
}

Result<Call> read_call(const std::string& name, const YamlNode& node) {
  const std::string where = cat("calls.", name, ".");
  BRAID_TRY(require_map(node, cat("calls.", name)));
  BRAID_TRY(require_known_keys(node, where,
                               {"kind", "role", "function", "reads", "writes", "metrics",
                                "samples_per_prompt", "compares_samples", "every_steps"}));
  Call call;
  call.name = name;
  BRAID_ASSIGN(call.kind, read_kind(node, where));
  call.role = RoleId{read_text(node, "role")};
  call.function = read_text(node, "function");
  call.metrics = read_text(node, "metrics");
  if (const YamlNode* reads = node.find("reads")) {
    if (reads->kind != YamlNode::Kind::kList)
      return wrong_value(*reads, cat(where, "reads must be a list of fields"));
    for (const YamlNode& item : reads->list) call.reads.push_back(item.scalar);
  }
  if (const YamlNode* writes = node.find("writes"))
    BRAID_TRY(read_writes(*writes, where + "writes", &call));
  if (const YamlNode* samples = node.find("samples_per_prompt"))
    if (!parse_int(samples->scalar, &call.samples_per_prompt) || call.samples_per_prompt < 0)
      return wrong_value(*samples, cat(where, "samples_per_prompt must be a whole number, not '",
                                       samples->scalar, "'"));
  if (const YamlNode* every = node.find("every_steps"))
    if (!parse_int(every->scalar, &call.every_steps) || call.every_steps < 1)
      return wrong_value(*every,
                         cat(where, "every_steps must be a whole number of at least 1, not '",
                             every->scalar, "'"));
  if (const YamlNode* compares = node.find("compares_samples")) {
    if (compares->scalar != "true" && compares->scalar != "false")
      return wrong_value(*compares, cat(where, "compares_samples must be true or false, not '",
                                        compares->scalar, "'"));
    call.compares_samples = compares->scalar == "true";
  }
  return call;
}

// What each kind of call needs of its role and function.
Status check_call(const Graph& graph, const Call& call) {
  const bool needs_role = call.kind == CallKind::kGenerate || call.kind == CallKind::kInfer ||
                          call.kind == CallKind::kTrainStep;
  if (needs_role && !uses_model(call))
    return invalid_input(
        cat("role is missing; a call of kind ", call_kind_name(call.kind), " runs a model"));
  if (uses_model(call) && (call.kind == CallKind::kFetch || call.kind == CallKind::kCompute ||
                           call.kind == CallKind::kFollow || call.kind == CallKind::kSelect))
    return invalid_input(
        cat("a call of kind ", call_kind_name(call.kind), " runs no model; remove its role"));
  const RoleSpec* role = find_role(graph, call.role);
  if (call.kind == CallKind::kTrainStep && role != nullptr && !role->trained)
    return invalid_input(cat("role ", call.role, " is not declared as trained: true"));
  const bool samples = call.kind == CallKind::kGenerate;
  if (samples && role != nullptr && role->scalar_head)
    return invalid_input(cat("role ", call.role, " has a scalar head and cannot generate"));
  const std::vector<std::string> functions = {"", "logprobs", "values", "scores"};
  if (call.kind == CallKind::kInfer &&
      std::find(functions.begin(), functions.end(), call.function) == functions.end())
    return invalid_input(cat("function '", call.function,
                             "' of an inference must be logprobs, values or scores",
                             did_you_mean(call.function, functions)));
  return ok_status();
}

Status check_role(const Graph& graph, const RoleSpec& role) {
  const bool updated = std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    return call.role == role.role && call.kind == CallKind::kTrainStep;
  });
  if (role.trained && !updated)
    return invalid_input("is declared as trained, but no train_step has it");
  if (role.weights_from.value.empty()) return ok_status();
  const RoleSpec* source = find_role(graph, role.weights_from);
  if (source == nullptr || !source->trained || role.trained)
    return invalid_input(cat("weights_from: ", role.weights_from,
                             " must be another role that is trained, and this one must not be"));
  return ok_status();
}

Status check_graph(const Graph& graph, const std::string& where) {
  if (graph.calls.empty()) return invalid_input(cat(where, ": calls is empty"));
  for (const Call& call : graph.calls)
    BRAID_TRY(check_call(graph, call).at(cat(where, ": call ", call.name)));
  for (const RoleSpec& role : graph.roles)
    BRAID_TRY(check_role(graph, role).at(cat(where, ": role ", role.role)));
  return verify(graph).at(where);
}

std::string call_text(const Call& call) {
  std::string out = cat("{kind: ", call_kind_name(call.kind));
  if (uses_model(call)) out += cat(", role: ", yaml_quoted(call.role.value));
  if (!call.function.empty()) out += cat(", function: ", yaml_quoted(call.function));
  std::vector<std::string> reads, writes;
  for (const std::string& field : call.reads) reads.push_back(yaml_quoted(field));
  for (const Field& field : call.writes)
    for (const NamedType& entry : kTypes)
      if (entry.type == field.type)
        writes.push_back(
            cat(yaml_quoted(field.name), ": ", entry.name, " ", shape_name(field.shape)));
  if (!reads.empty()) out += cat(", reads: [", join(reads, ", "), "]");
  if (!writes.empty()) out += cat(", writes: {", join(writes, ", "), "}");
  if (!call.metrics.empty()) out += cat(", metrics: ", yaml_quoted(call.metrics));
  if (call.samples_per_prompt > 0) out += cat(", samples_per_prompt: ", call.samples_per_prompt);
  if (call.compares_samples) out += ", compares_samples: true";
  if (call.every_steps > 1) out += cat(", every_steps: ", call.every_steps);
  return out + "}";
}

}  // namespace

Result<Graph> parse_graph(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  BRAID_TRY(require_map(root, "a graph"));
  BRAID_TRY(require_known_keys(root, "", {"name", "roles", "calls"}));
  Graph graph;
  graph.name = read_text(root, "name");
  if (graph.name.empty())
    return wrong_value(root, "name is missing; plans refer to the graph by it");
  if (const YamlNode* roles = root.find("roles")) {
    BRAID_TRY(require_map(*roles, "roles"));
    for (const auto& [name, node] : roles->map) {
      BRAID_ASSIGN(RoleSpec role, read_role(name, node));
      graph.roles.push_back(std::move(role));
    }
  }
  if (const YamlNode* calls = root.find("calls")) {
    BRAID_TRY(require_map(*calls, "calls"));
    for (const auto& [name, node] : calls->map) {
      BRAID_ASSIGN(Call call, read_call(name, node));
      graph.calls.push_back(std::move(call));
    }
  }
  BRAID_TRY(check_graph(graph, where));
  declare_sizes(&graph);
  BRAID_TRY(verify(graph).at(where));
  return graph;
}

std::string graph_to_yaml(const Graph& graph) {
  std::string out = cat("name: ", yaml_quoted(graph.name), "\n");
  if (!graph.roles.empty()) out += "roles:\n";
  for (const RoleSpec& role : graph.roles) {
    std::vector<std::string> parts;
    if (role.trained) parts.push_back("trained: true");
    if (role.scalar_head) parts.push_back("scalar_head: true");
    if (role.value_head) parts.push_back("value_head: true");
    if (!role.weights_from.value.empty())
      parts.push_back(cat("weights_from: ", yaml_quoted(role.weights_from.value)));
    out += cat("  ", yaml_quoted(role.role.value), ": {", join(parts, ", "), "}\n");
  }
  out += "calls:\n";
  for (const Call& call : graph.calls)
    out += cat("  ", yaml_quoted(call.name), ": ", call_text(call), "\n");
  return out;
}

}  // namespace braid::inline dataflow

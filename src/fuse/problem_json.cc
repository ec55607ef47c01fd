#include "fuse/problem_json.h"

#include <cmath>

namespace braid::inline fuse {
namespace {

Result<double> number(const Json& value, const std::string& key) {
  if (!value.is_number())
    return invalid_input(cat("'", key, "' must be a number, not ", value.type_name()));
  return value.get<double>();
}

Result<const Json*> member(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return invalid_input(cat("missing key '", key, "'"));
  return &*found;
}

Result<int32_t> integer(const Json& value, const std::string& key) {
  constexpr double kMost = 2e9;
  if (!value.is_number_integer())
    return invalid_input(cat("'", key, "' must be an integer, not ", value.dump()));
  if (std::abs(value.get<double>()) > kMost)
    return invalid_input(
        cat("'", key, "' is ", value.dump(), "; at most ", kMost, " is supported"));
  return value.get<int32_t>();
}

Result<int32_t> integer_member(const Json& object, const char* key) {
  BRAID_ASSIGN(const Json* value, member(object, key));
  return integer(*value, key);
}

// One number for all stages, or a list with one per stage.
Result<std::vector<double>> per_stage(const Json& object, const char* key, size_t stages) {
  BRAID_ASSIGN(const Json* value, member(object, key));
  if (value->is_array()) {
    std::vector<double> numbers;
    for (const Json& entry : *value) {
      BRAID_ASSIGN(const double one, number(entry, cat(key, "[", numbers.size(), "]")));
      numbers.push_back(one);
    }
    return numbers;
  }
  if (!value->is_number())
    return invalid_input(
        cat("'", key, "' must be a number or a list with one per stage, not ", value->type_name()));
  return std::vector<double>(stages, value->get<double>());
}

Result<std::vector<int32_t>> parse_stages(const Json& object) {
  BRAID_ASSIGN(const Json* list, member(object, "stages"));
  if (!list->is_array())
    return invalid_input(
        cat("'stages' must be a list with the node of each stage, not ", list->type_name()));
  std::vector<int32_t> stages;
  for (const Json& entry : *list) {
    BRAID_ASSIGN(const int32_t node, integer(entry, cat("stages[", stages.size(), "]")));
    stages.push_back(node);
  }
  return stages;
}

Result<Pipeline> parse_pipeline(const Json& json) {
  if (!json.is_object()) return invalid_input(cat("must be an object, not ", json.type_name()));
  BRAID_TRY(require_known_keys(
      json, {"name", "stages", "micro_batches", "forward", "backward", "weight", "memory"}));
  Pipeline pipeline;
  BRAID_ASSIGN(pipeline.name, json_field<std::string>(json, "name"));
  const auto at_name = [&](Status status) { return status.at(cat("'", pipeline.name, "'")); };
  const auto fill = [&]() -> Status {
    BRAID_ASSIGN(pipeline.stages, parse_stages(json));
    const size_t stages = pipeline.stages.size();
    BRAID_ASSIGN(pipeline.micro_batches, integer_member(json, "micro_batches"));
    BRAID_ASSIGN(pipeline.forward, per_stage(json, "forward", stages));
    BRAID_ASSIGN(pipeline.backward, per_stage(json, "backward", stages));
    if (json.contains("weight") && !json["weight"].is_null()) {
      BRAID_ASSIGN(pipeline.weight, per_stage(json, "weight", stages));
      if (pipeline.weight.empty() && stages > 0)
        return invalid_input("'weight' is empty; leave it out unless the backward is split");
    }
    BRAID_ASSIGN(pipeline.memory, per_stage(json, "memory", stages));
    return ok_status();
  };
  BRAID_TRY(at_name(fill()));
  return pipeline;
}

Result<PipelineProblem> build_problem(const Json& json) {
  if (!json.is_object())
    return invalid_input(cat("must be one JSON object, not ", json.type_name()));
  BRAID_TRY(require_known_keys(json, {"nodes", "pipelines", "communication", "memory_limit"}));
  PipelineProblem problem;
  BRAID_ASSIGN(problem.nodes, integer_member(json, "nodes"));
  BRAID_ASSIGN(const Json* list, member(json, "pipelines"));
  if (!list->is_array())
    return invalid_input(cat("'pipelines' must be a list, not ", list->type_name()));
  for (const Json& entry : *list) {
    BRAID_ASSIGN(Pipeline pipeline,
                 parse_pipeline(entry).at(cat("pipelines[", problem.pipelines.size(), "]")));
    problem.pipelines.push_back(std::move(pipeline));
  }
  BRAID_ASSIGN(problem.communication, json_field_or<double>(json, "communication", 0));
  if (json.contains("memory_limit") && !json["memory_limit"].is_null()) {
    BRAID_ASSIGN(problem.memory_limit, number(json["memory_limit"], "memory_limit"));
  }
  return problem;
}

const char* letter(PassKind kind) {
  static const char* const kLetters[] = {"F", "B", "W"};
  return kLetters[static_cast<size_t>(kind)];
}

}  // namespace

Result<PipelineProblem> parse_pipeline_problem(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const Json json, parse_json(text, where));
  return build_problem(json).at(where);
}

OrderedJson pipeline_problem_json(const PipelineProblem& problem) {
  OrderedJson json;
  json["nodes"] = problem.nodes;
  json["pipelines"] = OrderedJson::array();
  for (const Pipeline& pipeline : problem.pipelines) {
    OrderedJson entry;
    entry["name"] = pipeline.name;
    entry["stages"] = pipeline.stages;
    entry["micro_batches"] = pipeline.micro_batches;
    entry["forward"] = pipeline.forward;
    entry["backward"] = pipeline.backward;
    if (pipeline.split_backward()) entry["weight"] = pipeline.weight;
    entry["memory"] = pipeline.memory;
    json["pipelines"].push_back(std::move(entry));
  }
  json["communication"] = problem.communication;
  json["memory_limit"] = problem.memory_limit ? OrderedJson(*problem.memory_limit) : OrderedJson();
  return json;
}

OrderedJson timeline_json(const PipelineTimeline& timeline, const TimelineSummary& summary) {
  OrderedJson json;
  json["makespan"] = summary.makespan;
  json["lower_bound"] = summary.lower_bound;
  json["peak_memory"] = summary.peak_memory;
  json["nodes"] = OrderedJson::array();
  for (const auto& ops : timeline) {
    OrderedJson list = OrderedJson::array();
    for (const TimedPipelineOp& timed : ops)
      list.push_back({{"pipeline", timed.op.pipeline},
                      {"micro_batch", timed.op.micro_batch},
                      {"stage", timed.op.stage},
                      {"op", letter(timed.op.kind)},
                      {"start", timed.start},
                      {"end", timed.end}});
    json["nodes"].push_back(std::move(list));
  }
  return json;
}

}  // namespace braid::inline fuse

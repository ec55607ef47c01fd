#include "sim/recorded.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "batching/cache_pages.h"
#include "sim/batching.h"

namespace braid::inline sim {
namespace {

// Reads the lines of one step.
class StepReader {
 public:
  explicit StepReader(int64_t step) { recorded_.step = step; }

  Status add(std::string_view line, const std::string& where) {
    return line.front() == '{' ? add_row(line, where) : add_pair(line, where);
  }
  RecordedStep take() {
    if (ids_.empty()) recorded_.lengths.prompt_id.clear();
    return std::move(recorded_);
  }

 private:
  Status add_row(std::string_view line, const std::string& where) {
    BRAID_ASSIGN(const Json row, parse_json(line, where));
    const auto list = [&](const char* key) {
      return row.contains(key) && row[key].is_array() && !row[key].empty();
    };
    if (!row.is_object() || !list("prompt_ids") || !list("response_ids"))
      return invalid_input(
          cat(where, ": a recorded sample has the lists prompt_ids, response_ids, not empty"));
    if (row.contains("responses")) return ok_status();  // of a second generation
    if (row.contains("step") && row["step"].is_number_integer()) {
      const auto of_row = row["step"].get<int64_t>();
      if (recorded_.step < 0) recorded_.step = of_row;
      if (of_row != recorded_.step) return ok_status();
    }
    const Json& prompt = row["prompt_ids"];
    const auto id = ids_.insert({prompt.dump(), static_cast<int64_t>(ids_.size())}).first->second;
    append(static_cast<int64_t>(prompt.size()), static_cast<int64_t>(row["response_ids"].size()),
           id);
    return ok_status();
  }

  Status add_pair(std::string_view line, const std::string& where) {
    const size_t space = line.find_first_of(" \t,");
    int64_t prompt = 0, response = 0;
    const bool ok = space != std::string_view::npos &&
                    parse_int(trim(line.substr(0, space)), &prompt) &&
                    parse_int(trim(line.substr(space + 1)), &response);
    if (!ok || prompt < 1 || response < 1)
      return invalid_input(cat(where, ": '", excerpt(line),
                               "' is not a prompt and a response length of at least 1 token"));
    append(prompt, response, -1);
    return ok_status();
  }

  void append(int64_t prompt, int64_t response, int64_t prompt_id) {
    recorded_.lengths.prompt.push_back(prompt);
    recorded_.lengths.response.push_back(response);
    recorded_.lengths.prompt_id.push_back(prompt_id);
  }

  RecordedStep recorded_;
  std::map<std::string, int64_t> ids_;  // of prompts
};

}  // namespace

Result<RecordedStep> parse_recorded_step(std::string_view text, const std::string& where,
                                         int64_t step) {
  StepReader reader(step);
  int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string_view content = trim(line);
    if (!content.empty()) BRAID_TRY(reader.add(content, cat(where, ":", number)));
  }
  RecordedStep recorded = reader.take();
  if (recorded.lengths.prompt.empty())
    return invalid_input(cat(where, ": no samples", step >= 0 ? cat(" of step ", step) : ""));
  return recorded;
}

void take_engine_limits(const RolloutConfig& rollout, const RecordedStep* recorded,
                        PlanningProblem* problem, ExecutionPlan* plan) {
  if (plan->devices != 1) return;
  Workload& work = problem->workload;
  if (recorded != nullptr) {
    const auto& prompts = recorded->lengths.prompt;
    work.prompt.longest = *std::max_element(prompts.begin(), prompts.end());
    work.response.longest = rollout.max_response_length;
  }
  for (CallPlan& entry : plan->calls) {
    const Call* call = find_call(problem->graph, entry.call);
    if (call == nullptr || call->kind != CallKind::kGenerate) continue;
    Strategy& strategy = entry.strategy;
    if (strategy.max_concurrent == 0) strategy.max_concurrent = rollout.max_concurrent;
    if (strategy.kv_budget_tokens == 0) strategy.kv_budget_tokens = rollout.kv_budget_tokens;
    if (strategy.kv_budget_tokens > 0 || recorded == nullptr) continue;
    const auto samples = static_cast<int64_t>(recorded->lengths.prompt.size());
    strategy.kv_budget_tokens = std::min(strategy.max_concurrent, samples) * kPageTokens *
                                pages_for(work.prompt.longest + work.response.longest);
  }
}

std::set<std::string> idle_calls(const Config& config, const Graph& graph, int64_t step) {
  const RoleId critic{"critic"};
  std::set<std::string> idle;
  if (step < 0 || step >= config.critic.warmup_steps || find_role(graph, critic) == nullptr)
    return idle;
  for (const Call& call : graph.calls)
    if (call.kind == CallKind::kTrainStep && call.role != critic) idle.insert(call.name);
  return idle;
}

}  // namespace braid::inline sim

// Rollouts that are made some steps before they are learnt from (staleness of a plan), of which a
// part is (rollout.in_flight), or both.
#include <algorithm>
#include <set>

#include "base/contains.h"
#include "base/text.h"
#include "dataflow/graph.h"

namespace braid::inline dataflow {
namespace {

Status refused(int64_t steps, const std::string& why) {
  return invalid_input(cat("staleness: ", steps, ": ", why, "; nearest legal value: 0"));
}

// Marks the calls that generate, and the data that these read.
Status mark_ahead(int64_t steps, Graph* graph) {
  std::set<std::string> wanted;
  for (size_t i = graph->calls.size(); i-- > 0;) {
    Call& call = graph->calls[i];
    const bool feeds = std::any_of(call.writes.begin(), call.writes.end(), [&](const Field& field) {
      return wanted.count(field.name) > 0;
    });
    if (call.kind == CallKind::kSelect)
      return refused(steps,
                     "groups that are drawn again (algorithm.dynamic_sampling) are generated in "
                     "several rounds of one step");
    if (!feeds && call.kind != CallKind::kGenerate) continue;
    if (call.kind != CallKind::kGenerate && call.kind != CallKind::kFetch)
      return refused(steps, cat("generation reads what ", call.name,
                                " makes, and only data may come before it"));
    call.steps_ahead = steps;
    wanted.insert(call.reads.begin(), call.reads.end());
  }
  const auto apart = [&](const Call& call) {
    return call.kind == CallKind::kFetch && call.steps_ahead == 0;
  };
  if (wanted.empty()) return refused(steps, cat("graph ", graph->name, " generates nothing"));
  if (std::any_of(graph->calls.begin(), graph->calls.end(), apart))
    return refused(steps, cat("graph ", graph->name, " reads data that it does not generate from"));
  return ok_status();
}

// Which calls of the step's own samples come before the generation: those that all ranks hear of,
// what these need, and what runs where it generates.
std::vector<bool> before_generation(const Graph& graph, const RunsApart& apart) {
  std::vector<bool> out(graph.calls.size(), false);
  const auto trains = std::find_if(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep;
  });
  std::set<std::string> wanted;
  for (auto i = static_cast<size_t>(trains - graph.calls.begin()); i-- > 0;) {
    const Call& call = graph.calls[i];
    if (call.steps_ahead > 0) continue;
    const bool feeds = std::any_of(call.writes.begin(), call.writes.end(), [&](const Field& field) {
      return wanted.count(field.name) > 0;
    });
    out[i] = feeds || call.kind == CallKind::kReward || call.kind == CallKind::kCompute || !apart ||
             !apart(call);
    if (out[i]) wanted.insert(call.reads.begin(), call.reads.end());
  }
  return out;
}

// Whoever generates works while others train.
void order_calls(const RunsApart& apart, Graph* graph) {
  const std::vector<bool> before = before_generation(*graph, apart);
  std::vector<std::pair<int, Call>> placed;
  for (size_t i = 0; i < before.size(); ++i) {
    Call& call = graph->calls[i];
    const int ahead = call.kind == CallKind::kFetch ? 0 : 2, now = before[i] ? 1 : 3;
    placed.emplace_back(call.steps_ahead > 0 ? ahead : now, std::move(call));
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  graph->calls.clear();
  for (auto& [place, call] : placed) graph->calls.push_back(std::move(call));
}

bool has_version(const Graph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep && contains(call.reads, kWeightsVersion);
  });
}

// The version of the weights goes with the samples to those who learn from them.
void add_version(Graph* graph) {
  if (has_version(*graph)) return;  // samples are carried, and made ahead
  for (Call& call : graph->calls) {
    if (call.kind != CallKind::kGenerate) continue;
    call.writes.push_back({kWeightsVersion, FieldType::kCount, FieldShape::kPerSample});
    break;  // all generate with the same
  }
  for (Call& call : graph->calls)
    if (call.kind == CallKind::kTrainStep) call.reads.emplace_back(kWeightsVersion);
}

}  // namespace

Result<Graph> generated_ahead(Graph graph, int64_t steps, const RunsApart& apart) {
  if (steps == 0) return graph;
  BRAID_TRY(mark_ahead(steps, &graph));
  order_calls(apart, &graph);
  add_version(&graph);
  return graph;
}

// Of the calls that wait for nothing else, the first by name.
Graph ordered_by_name(const Graph& graph) {
  const auto waits = dependencies(graph);
  Graph out{graph.name, graph.roles, {}};
  std::vector<bool> done(graph.calls.size(), false);
  for (size_t count = 0; count < done.size(); ++count) {
    int32_t next = -1;
    for (size_t i = 0; i < done.size(); ++i) {
      const bool free = std::all_of(waits[i].begin(), waits[i].end(),
                                    [&](CallId before) { return done[before.value]; });
      if (!done[i] && free && (next < 0 || graph.calls[i].name < graph.calls[next].name))
        next = static_cast<int32_t>(i);
    }
    BRAID_CHECK(next >= 0, "calls wait for each other in a circle");
    done[next] = true;
    out.calls.push_back(graph.calls[next]);
  }
  return out;
}

int64_t steps_ahead(const Graph& graph) {
  int64_t most = 0;
  for (const Call& call : graph.calls) most = std::max(most, call.steps_ahead);
  return most;
}

Result<Graph> carried_over(Graph graph, int64_t steps) {
  const auto refused = [&](const std::string& why) {
    return invalid_input(cat("rollout.in_flight: ", graph.name, " ", why, "; set it to 1"));
  };
  Call* generation = nullptr;
  for (Call& call : graph.calls) {
    if (call.kind != CallKind::kGenerate) continue;
    if (generation != nullptr)
      return refused(
          "generates a second response to each prompt, which is compared with those "
          "of the same weights");
    generation = &call;
  }
  if (generation == nullptr) return refused("generates nothing");
  const bool corrects = std::any_of(graph.calls.begin(), graph.calls.end(), [](const Call& call) {
    return call.kind == CallKind::kTrainStep && contains(call.reads, "old_logprobs");
  });
  if (!corrects)
    return refused(
        "learns without the log-probs of the policy that sampled, so that nothing "
        "corrects for tokens of older weights");
  generation->carried_steps = steps;
  add_version(&graph);
  return graph;
}

int64_t carried_steps(const Graph& graph) {
  int64_t most = 0;
  for (const Call& call : graph.calls) most = std::max(most, call.carried_steps);
  return most;
}

bool of_other_steps(const Graph& graph, CallId a, CallId b) {
  return graph.calls[a.value].steps_ahead != graph.calls[b.value].steps_ahead;
}

}  // namespace braid::inline dataflow

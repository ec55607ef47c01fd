#include "search/plan_report.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "plan/baselines/baselines.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::planner {
namespace {

constexpr double kGib = 1073741824.0;
constexpr double kNearlyFull = 0.9;  // a device this full counts as short of memory

std::string padded(const std::string& text, int width) {
  const auto missing = width - static_cast<int>(text.size());
  return missing > 0 ? std::string(static_cast<size_t>(missing), ' ') + text : text;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::vector<std::string> model_calls(const PlanningProblem& problem) {
  std::vector<std::string> names;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) names.push_back(call.name);
  return names;
}

CompareRow judged_row(const std::string& name, const std::string& description,
                      const Result<ExecutionPlan>& plan, const Judge& judge) {
  CompareRow row{name, description, {}, {}, {}};
  if (!plan.ok()) {
    row.reason = plan.status().message();
    return row;
  }
  row.plan = *plan;
  const Result<Verdict> verdict = judge(*plan);
  if (verdict.ok()) row.verdict = *verdict;
  if (!verdict.ok()) row.reason = verdict.status().message();
  return row;
}

Result<ExecutionPlan> hybridflow(const PlanningProblem& problem, const CallPricer& pricer,
                                 const Judge& judge) {
  HybridFlowPrices prices;
  prices.call_seconds = [&](const CallPlan& entry) -> std::optional<double> {
    const Call* call = find_call(problem.graph, entry.call);
    const auto price = pricer.price(*call, entry.mesh, entry.strategy);
    if (!price.ok()) return std::nullopt;
    const double capacity = pricer.capacity_bytes(gpu_of(problem.cluster, entry.mesh.devices[0]));
    if (price->weight_bytes + price->transient_bytes > capacity) return std::nullopt;
    return price->time.total_s;
  };
  prices.fits = [&](const ExecutionPlan& plan) {
    const Result<Verdict> verdict = judge(plan);
    return verdict.ok() && verdict->fits;
  };
  return hybridflow_plan(problem, prices);
}

// The rows' fastest that fits is not assumed to be the first; the first is ours.
double ratio(const std::vector<CompareRow>& rows, const CompareRow& row) {
  if (!row.verdict || !rows.front().verdict) return 0;
  return row.verdict->step_s / rows.front().verdict->step_s;
}

Json call_plan_json(const CallPlan& plan) {
  Json json;
  json["call"] = plan.call;
  json["mesh"] = mesh_text(plan.mesh);
  json["strategy"] = strategy_text(plan.strategy);
  return json;
}

}  // namespace

std::vector<CompareRow> compare_baselines(const PlanningProblem& problem, const CallPricer& pricer,
                                          const Judge& judge) {
  std::vector<CompareRow> rows;
  for (const Baseline& baseline : baselines())
    rows.push_back(judged_row(baseline.name, baseline.description, baseline.make(problem), judge));
  rows.push_back(judged_row("hybridflow", "HybridFlow's auto-mapping",
                            hybridflow(problem, pricer, judge), judge));
  return rows;
}

std::string compare_text(const PlanningProblem& problem, const std::vector<CompareRow>& rows) {
  const std::vector<std::string> calls = model_calls(problem);
  std::string out = cat(padded("plan", 20), padded("step s", 10), padded("ratio", 8),
                        padded("peak GiB", 10), padded("busy %", 8));
  for (const std::string& call : calls)
    out += padded(call, static_cast<int>(std::max<size_t>(10, call.size() + 2)));
  out += "\n";
  for (const CompareRow& row : rows) {
    out += padded(row.name, 20);
    if (!row.verdict) {
      out += cat("  ", row.reason, "\n");
      continue;
    }
    const Verdict& v = *row.verdict;
    out += cat(padded(fixed(v.step_s, 3), 10), padded(fixed(ratio(rows, row), 2), 8),
               padded(fixed(v.peak_bytes / kGib, 1), 10), padded(fixed(100 * v.utilisation, 0), 8));
    for (size_t c = 0; c < calls.size() && c < v.call_s.size(); ++c)
      out += padded(fixed(v.call_s[c], 3),
                    static_cast<int>(std::max<size_t>(10, calls[c].size() + 2)));
    out += v.fits ? "\n" : cat("  does not fit: ", v.reason, "\n");
  }
  return out;
}

Json compare_json(const PlanningProblem& problem, const std::vector<CompareRow>& rows) {
  const std::vector<std::string> calls = model_calls(problem);
  Json out = Json::array();
  for (const CompareRow& row : rows) {
    Json json;
    json["name"] = row.name;
    json["description"] = row.description;
    if (row.plan) json["plan"] = plan_json(*row.plan);
    if (row.verdict) {
      const Verdict& v = *row.verdict;
      json["step_s"] = v.step_s;
      json["ratio"] = ratio(rows, row);
      json["peak_gib"] = v.peak_bytes / kGib;
      json["utilisation"] = v.utilisation;
      json["fits"] = v.fits;
      for (size_t c = 0; c < calls.size() && c < v.call_s.size(); ++c)
        json["calls"][calls[c]] = v.call_s[c];
    }
    const std::string why = row.verdict && !row.verdict->fits ? row.verdict->reason : row.reason;
    if (!why.empty()) json["reason"] = why;
    out.push_back(std::move(json));
  }
  return out;
}

// ---- Explanation

namespace {

CallPlan entry_of(const PlanSpace& space, int call, int value) {
  Choice choice(static_cast<size_t>(space.num_coordinates()), 0);
  choice[static_cast<size_t>(call)] = value;
  return plan_of(space, choice).calls[static_cast<size_t>(call)];
}

// Devices full enough that an option that needs more memory is out of reach.
bool short_of_memory(const PlanSpace& space, const Assignment& plan, int call) {
  const PlanOption& option = *plan.option[call];
  return device_bytes(space, plan, option.first) > kNearlyFull * space.capacity_bytes[option.first];
}

// Whether a faster option exists that would not fit with everything else as it is.
bool faster_does_not_fit(const PlanSpace& space, const Choice& choice, int call) {
  const PlanDomain domain(space);
  PlanState state = domain.state_with(choice);
  for (int value = 0; value < domain.num_values(call); ++value) {
    const PlanCost cost = domain.cost_with(state, call, value);
    if (cost.excess_bytes > 0 && cost.time_us < state.cost.time_us) return true;
  }
  return false;
}

void find_binding(const PlanSpace& space, const Choice& choice, int call,
                  CallExplanation* explanation) {
  const Assignment plan = assignment_of(space, choice);
  const Call& graph_call = space.problem->graph.calls[space.calls[call].call.value];
  const bool decodes = graph_call.kind == CallKind::kGenerate;
  if (explanation->moving_s > 0.3 * explanation->seconds) {
    explanation->binds = "links";
    explanation->why = "moving weights and sample fields takes more than 30 % of its time";
  } else if (faster_does_not_fit(space, choice, call) || short_of_memory(space, plan, call)) {
    explanation->binds = "memory";
    explanation->why = "a faster option exists and does not fit beside the other calls";
    if (!faster_does_not_fit(space, choice, call))
      explanation->why = "its devices are more than 90 % full";
  } else if (decodes) {
    explanation->binds = "memory bandwidth";
    explanation->why = "decoding reads weights and cache once per token";
  } else {
    explanation->binds = "computation";
    explanation->why = "matrix products of its tokens";
  }
}

}  // namespace

std::vector<CallExplanation> explain(const PlanSpace& space, const Choice& choice, int others) {
  std::vector<CallExplanation> out;
  const Assignment plan = assignment_of(space, choice);
  const std::vector<CallTiming> times = timeline(space, plan);
  for (int c = 0; c < space.num_calls(); ++c) {
    CallExplanation explanation;
    explanation.chosen = entry_of(space, c, choice[static_cast<size_t>(c)]);
    explanation.call = explanation.chosen.call;
    explanation.seconds = static_cast<double>(times[c].end_us - times[c].start_us) / 1e6;
    explanation.moving_s = static_cast<double>(overhead_us(space, plan, c)) / 1e6;
    find_binding(space, choice, c, &explanation);
    for (const Alternative& other : alternatives(space, choice, c, others + 1)) {
      if (other.value == choice[static_cast<size_t>(c)]) continue;
      if (static_cast<int>(explanation.next_best.size()) == others) break;
      explanation.next_best.push_back({entry_of(space, c, other.value),
                                       static_cast<double>(other.cost.time_us) / 1e6,
                                       other.cost.excess_bytes == 0});
    }
    out.push_back(std::move(explanation));
  }
  return out;
}

std::string explain_text(const std::vector<CallExplanation>& calls) {
  std::string out;
  for (const CallExplanation& call : calls) {
    out += cat(call.call, ": ", fixed(call.seconds, 3), " s on ", mesh_text(call.chosen.mesh), " ",
               strategy_text(call.chosen.strategy), "\n  limited by ", call.binds, ": ", call.why,
               "\n");
    for (const auto& other : call.next_best)
      out +=
          cat("  next best: ", mesh_text(other.plan.mesh), " ", strategy_text(other.plan.strategy),
              ", step ", fixed(other.step_s, 3), " s", other.fits ? "" : " (does not fit)", "\n");
  }
  return out;
}

Json explain_json(const std::vector<CallExplanation>& calls) {
  Json out = Json::array();
  for (const CallExplanation& call : calls) {
    Json json = call_plan_json(call.chosen);
    json["seconds"] = call.seconds;
    json["moving_s"] = call.moving_s;
    json["binds"] = call.binds;
    json["why"] = call.why;
    json["next_best"] = Json::array();
    for (const auto& other : call.next_best) {
      Json entry = call_plan_json(other.plan);
      entry["step_s"] = other.step_s;
      entry["fits"] = other.fits;
      json["next_best"].push_back(std::move(entry));
    }
    out.push_back(std::move(json));
  }
  return out;
}

std::string plan_table(const PlanningProblem& problem, const ExecutionPlan& plan,
                       const Verdict& verdict) {
  std::string out;
  const std::vector<std::string> calls = model_calls(problem);
  for (size_t c = 0; c < calls.size(); ++c) {
    const CallPlan& entry = call_plan(plan, calls[c]);
    const double seconds = c < verdict.call_s.size() ? verdict.call_s[c] : 0;
    out += cat(padded(calls[c], 16), "  ", padded(fixed(seconds, 3), 9), " s  devices ",
               mesh_text(entry.mesh), "  ", strategy_text(entry.strategy), "\n");
  }
  for (const RolePlan& role : plan.roles)
    out += cat(padded(role.role.value, 16), "  weights ", residency_name(role.weights),
               ", optimizer ", residency_name(role.optimizer), "\n");
  return out;
}

std::optional<SmallestCluster> smallest_cluster(
    const PlanningProblem& problem, int most_devices,
    const std::function<bool(const PlanningProblem&)>& fits) {
  const Node node = problem.cluster.nodes.front();
  const auto fits_on = [&](int nodes) {
    PlanningProblem larger = problem;
    larger.cluster.nodes.assign(static_cast<size_t>(nodes), node);
    return fits(larger);
  };
  int low = 0, high = 1;  // fits on high, not on low
  while (high * node.devices <= most_devices && !fits_on(high)) {
    low = high;
    high *= 2;
  }
  if (high * node.devices > most_devices) return std::nullopt;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (fits_on(middle) ? high : low) = middle;
  }
  return SmallestCluster{high, high * node.devices};
}

}  // namespace braid::planner

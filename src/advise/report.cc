#include "advise/report.h"

#include <algorithm>
#include <cstdio>

#include "advise/table.h"
#include "base/text.h"
#include "base/units.h"
#include "foreign/baselines/baselines.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline advise {
namespace {

std::string padded(const std::string& text, int width) {
  const auto missing = width - static_cast<int>(text.size());
  return missing > 0 ? std::string(static_cast<size_t>(missing), ' ') + text : text;
}

// When what waits on the host goes there: `when` of a plan file.
std::string moved_text(const RolePlan& role) {
  if (role.weights == Residency::kDevice && role.optimizer == Residency::kDevice) return "-";
  return role.timing == OffloadTiming::kAfterLastCall ? "after its last call" : "after each call";
}

// When it comes back: `prefetch` of a plan file.
std::string fetched_text(const RolePlan& role) {
  if (role.weights == Residency::kDevice && role.optimizer == Residency::kDevice) return "-";
  return role.prefetch ? "during the call before" : "when its call begins";
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
    out += cat(padded(fixed_text(v.step_s, 3), 10), padded(fixed_text(ratio(rows, row), 2), 8),
               padded(fixed_text(v.peak_bytes / kGib, 1), 10),
               padded(fixed_text(100 * v.utilisation, 0), 8));
    for (size_t c = 0; c < calls.size() && c < v.call_s.size(); ++c)
      out += padded(fixed_text(v.call_s[c], 3),
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

std::string plan_table(const PlanningProblem& problem, const ExecutionPlan& plan,
                       const DetailedVerdict& detailed) {
  const std::vector<std::string> calls = model_calls(problem);
  const std::vector<double>& seconds = detailed.verdict.call_s;
  std::vector<std::vector<std::string>> rows = {
      {"call", "begin s", "end s", "takes s", "devices", "strategy"}};
  for (size_t c = 0; c < calls.size(); ++c) {
    const CallPlan& entry = call_plan(plan, calls[c]);
    const double begin = c < detailed.begin_s.size() ? detailed.begin_s[c] : 0;
    const double takes = c < seconds.size() ? seconds[c] : 0;
    rows.push_back({calls[c], fixed_text(begin, 3), fixed_text(begin + takes, 3),
                    fixed_text(takes, 3), mesh_text(entry.mesh), strategy_text(entry.strategy)});
  }
  std::string out = aligned_table(rows, {false, true, true, true, false, false});
  if (plan.roles.empty()) return out;
  rows = {{"role", "weights on", "optimizer on", "moved", "fetched"}};
  for (const RolePlan& role : plan.roles)
    rows.push_back({role.role.value, residency_name(role.weights), residency_name(role.optimizer),
                    moved_text(role), fetched_text(role)});
  return out + aligned_table(rows, std::vector<bool>(5, false));
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

}  // namespace braid::inline advise

// braid search-table: solves a tabulated plan-search problem, or prices a given plan on it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "base/json.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "braid/plan/limits.h"
#include "host/clock.h"
#include "host/file.h"
#include "host/gzip.h"
#include "tabular/solver.h"

namespace braid {
namespace {

struct SearchTableOptions {
  std::string problem;
  std::string evaluate;
  std::string out;
  SearchLimits limits;
  uint64_t seed = 1;
  std::string method = "auto";
  double inverse_temperature = 0.001;
  bool json = false;
};

const std::map<std::string, optimize::Method>& methods() {
  static const std::map<std::string, optimize::Method> kMethods = {
      {"auto", optimize::Method::kAuto},
      {"descent", optimize::Method::kDescent},
      {"annealing", optimize::Method::kAnnealing},
      {"metropolis", optimize::Method::kMetropolis}};
  return kMethods;
}

double to_seconds(int64_t microseconds) { return static_cast<double>(microseconds) / 1e6; }

Status check_options(const SearchTableOptions& options) {
  BRAID_TRY(check_limits(options.limits));
  if (!(options.inverse_temperature > 0) || !std::isfinite(options.inverse_temperature))
    return invalid_input("--inverse-temperature must be a positive number");
  return ok_status();
}

Result<tabular::Problem> load_problem(const std::string& path) {
  BRAID_ASSIGN(std::string data, read_file(path));
  const bool named_gzip = path.size() > 3 && path.compare(path.size() - 3, 3, ".gz") == 0;
  if (is_gzip(data) || named_gzip) {
    BRAID_ASSIGN(data, gunzip(data).at(path));
  }
  return tabular::parse_problem(data, path);
}

OrderedJson price_json(const tabular::Problem& problem, const tabular::Price& price) {
  return {{"cost", to_seconds(price.cost_us)},
          {"cost_us", price.cost_us},
          {"feasible", price.feasible},
          {"peak_memory_per_device", price.peak_bytes},
          {"capacity", problem.device_memory_bytes},
          {"absent_realloc_entries", price.untabulated_moves}};
}

Status evaluate(const SearchTableOptions& options) {
  BRAID_ASSIGN(const tabular::Problem problem, load_problem(options.problem));
  BRAID_ASSIGN(const std::string text, read_file(options.evaluate));
  BRAID_ASSIGN(const tabular::Plan plan, tabular::parse_plan(problem, text, options.evaluate));
  const tabular::Price price = tabular::price_plan(problem, plan);
  std::printf("%s\n", price_json(problem, price).dump().c_str());
  return ok_status();
}

// What the report needs beside the solution.
struct Timing {
  double total_s = 0;   // reading included
  double search_s = 0;  // without reading
  int threads = 1;
};

OrderedJson log_json(const tabular::Solution& solution) {
  OrderedJson log = OrderedJson::array();
  for (const tabular::CostLogEntry& entry : solution.log)
    log.push_back({{"unit", entry.unit},
                   {"seconds", entry.elapsed_s},
                   {"cost", to_seconds(entry.cost_us)},
                   {"feasible", entry.feasible}});
  return log;
}

OrderedJson result_json(const SearchTableOptions& options, const tabular::Problem& problem,
                        const tabular::Solution& solution, const Timing& timing) {
  const bool feasible = solution.price && solution.price->feasible;
  const bool has_bound = feasible || !solution.proven;
  const int64_t cost_us = feasible ? solution.price->cost_us : 0;
  const int64_t evaluations = solution.plans_priced + solution.bounds_computed;
  const double rate = static_cast<double>(evaluations) / std::max(timing.search_s, 1e-9);
  OrderedJson json;
  json["problem"] = problem.name;
  json["cost"] = feasible ? OrderedJson(to_seconds(cost_us)) : OrderedJson();
  json["feasible"] = feasible;
  json["lower_bound"] =
      has_bound ? OrderedJson(to_seconds(solution.lower_bound_us)) : OrderedJson();
  json["gap"] = feasible && cost_us > 0
                    ? OrderedJson(1.0 - static_cast<double>(solution.lower_bound_us) /
                                            static_cast<double>(cost_us))
                    : OrderedJson();
  json["optimal"] = feasible && solution.proven;
  if (!feasible) json["proven_infeasible"] = solution.proven;
  if (!feasible) json["reason"] = solution.infeasible_reason;
  json["evaluations"] = evaluations;
  json["plans_priced"] = solution.plans_priced;
  json["bounds_computed"] = solution.bounds_computed;
  json["evaluations_per_s"] = rate;
  json["evaluations_per_s_per_thread"] = rate / timing.threads;
  json["seconds"] = timing.total_s;
  json["search_seconds"] = timing.search_s;
  json["time_to_best"] =
      solution.log.empty() ? OrderedJson() : OrderedJson(solution.log.back().elapsed_s);
  json["method"] = options.method;
  json["units"] = solution.units;
  json["seed"] = options.seed;
  json["threads"] = timing.threads;
  if (solution.price) {
    json["peak_memory_per_device"] = solution.price->peak_bytes;
    json["capacity"] = problem.device_memory_bytes;
    json["absent_realloc_entries"] = solution.price->untabulated_moves;
  }
  json["log"] = log_json(solution);
  return json;
}

void print_text(const tabular::Problem& problem, const tabular::Solution& solution,
                const Timing& timing) {
  if (!solution.price || !solution.price->feasible) return;
  const double cost_s = to_seconds(solution.price->cost_us);
  const double bound_s = to_seconds(solution.lower_bound_us);
  std::printf("cost         %.6f s for %d iterations%s\n", cost_s, problem.iterations,
              solution.proven ? " (proven optimum)" : "");
  std::printf("lower bound  %.6f s (gap %.2f %%)\n", bound_s, 100 * (1 - bound_s / cost_s));
  std::printf("peak memory  %s of %s\n",
              format_bytes(static_cast<double>(solution.price->peak_bytes)).c_str(),
              format_bytes(static_cast<double>(problem.device_memory_bytes)).c_str());
  std::printf("searched     %lld units in %s\n", static_cast<long long>(solution.units),
              format_seconds(timing.total_s).c_str());
  for (size_t c = 0; c < problem.calls.size(); ++c) {
    const int index = (*solution.plan)[c];
    const tabular::Option& option = problem.calls[c].options[index];
    std::printf("  %-16s option %-5d devices %d-%d, pp %d tp %d dp %d, %s\n",
                problem.calls[c].name.c_str(), index, option.first_device, option.end_device() - 1,
                option.layout.pp, option.layout.tp, option.layout.dp,
                format_seconds(to_seconds(option.time_us)).c_str());
  }
}

tabular::SolveOptions solve_options(const SearchTableOptions& options, const Stopwatch& watch) {
  tabular::SolveOptions solve;
  solve.method = methods().at(options.method);
  solve.seed = options.seed;
  solve.inverse_temperature = options.inverse_temperature;
  solve.units = unit_options(options.limits, watch, options.limits.limit_s());
  return solve;
}

Status search(const SearchTableOptions& options) {
  const Stopwatch watch(now_s);
  BRAID_ASSIGN(const tabular::Problem problem, load_problem(options.problem));
  const Stopwatch search_watch(now_s);
  const tabular::SolveOptions solve = solve_options(options, watch);
  BRAID_ASSIGN(const tabular::Solution solution,
               tabular::solve(problem, solve).at(options.problem));
  const Timing timing{.total_s = watch.elapsed_s(),
                      .search_s = search_watch.elapsed_s(),
                      .threads = solve.units.threads};
  if (options.json) {
    std::printf("%s\n", result_json(options, problem, solution, timing).dump().c_str());
  } else {
    print_text(problem, solution, timing);
  }
  if (!solution.price || !solution.price->feasible)
    return {Code::kInfeasible, cat(options.problem, ": ", solution.infeasible_reason,
                                   "; raise device_memory_bytes or add options")};
  if (!options.out.empty())
    BRAID_TRY(write_file_atomic(options.out, tabular::plan_text(problem, *solution.plan)));
  return ok_status();
}

Status run_search_table(const SearchTableOptions& options) {
  BRAID_TRY(check_options(options));
  BRAID_TRY(check_outputs({{"--out", options.out}}));
  return options.evaluate.empty() ? search(options) : evaluate(options);
}

Action define_search_table(CLI::App& app) {
  auto options = std::make_shared<SearchTableOptions>();
  std::vector<std::string> names;
  for (const auto& [name, method] : methods()) names.push_back(name);
  app.add_option("PROBLEM", options->problem, "problem file: JSON, plain or gzipped")->required();
  app.add_option("--evaluate", options->evaluate, "only price this plan file");
  app.add_option("--out", options->out, "write the best plan to this file");
  define_search_options(app, options->limits, options->seed);
  app.add_option("--method", options->method, "auto, descent, annealing or metropolis")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  app.add_option("--inverse-temperature", options->inverse_temperature,
                 "of the metropolis method, per 0.1 s of cost")
      ->capture_default_str();
  app.add_flag("--json", options->json, "print one JSON object");
  return [options] { return run_search_table(*options); };
}

}  // namespace

extern const Command kSearchTableCommand;
const Command kSearchTableCommand = {
    "search-table", "solve a tabulated plan-search problem (docs/search.md)", define_search_table};

}  // namespace braid

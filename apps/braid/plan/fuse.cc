// braid fuse: fuses the pipelines of a problem file into one schedule.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "base/json.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "braid/plan/limits.h"
#include "fuse/fuse.h"
#include "fuse/gantt.h"
#include "fuse/problem_json.h"
#include "host/clock.h"
#include "host/file.h"

namespace braid {
namespace {

struct FuseCommandOptions {
  std::string problem;
  std::string out;
  std::string plot;
  SearchLimits limits;
  uint64_t seed = 1;
  double memory_limit = 0;
  bool has_memory_limit = false;
  bool split_backward = false;
  std::string objective = "latency";
  bool json = false;
};

const std::map<std::string, FuseObjective>& objectives() {
  static const std::map<std::string, FuseObjective> kObjectives = {
      {"latency", FuseObjective::kLatency}, {"memory", FuseObjective::kMemory}};
  return kObjectives;
}

Result<PipelineProblem> load_fuse_problem(const FuseCommandOptions& options) {
  BRAID_ASSIGN(const std::string text, read_file(options.problem));
  BRAID_ASSIGN(PipelineProblem problem, parse_pipeline_problem(text, options.problem));
  if (options.has_memory_limit) problem.memory_limit = options.memory_limit;
  if (options.split_backward) problem = with_split_backward(std::move(problem));
  BRAID_TRY(check_problem(problem).at(options.problem));
  return problem;
}

TimelineSummary summary_of(const FuseResult& result) {
  return {result.makespan, result.lower_bound, result.peak_memory};
}

OrderedJson log_json(const FuseResult& result) {
  OrderedJson log = OrderedJson::array();
  for (const FuseImprovement& step : result.log)
    log.push_back({{"unit", step.unit},
                   {"seconds", step.elapsed_s},
                   {"makespan", step.makespan},
                   {"peak_memory", step.peak_memory}});
  return log;
}

// The schedule file's object and what is known of the search; the ops only where no file has them.
OrderedJson report_json(const FuseCommandOptions& options, const FuseResult& result,
                        double seconds) {
  OrderedJson json = timeline_json(result.timeline, summary_of(result));
  OrderedJson nodes = std::move(json["nodes"]);
  json.erase("nodes");
  json["optimal"] = result.optimal;
  json["gap"] = result.makespan > 0 ? 1 - result.lower_bound / result.makespan : 0.0;
  json["objective"] = options.objective;
  json["seconds"] = seconds;
  json["units"] = result.units;
  json["seed"] = options.seed;
  json["log"] = log_json(result);
  if (options.out.empty()) json["nodes"] = std::move(nodes);
  return json;
}

void print_fuse_text(const PipelineProblem& problem, const FuseResult& result, double seconds) {
  std::printf("makespan     %s%s\n", format_double(result.makespan).c_str(),
              result.optimal ? " (proven optimum)" : "");
  std::printf("lower bound  %s (gap %.2f %%)\n", format_double(result.lower_bound).c_str(),
              result.makespan > 0 ? 100 * (1 - result.lower_bound / result.makespan) : 0.0);
  std::printf(
      "peak memory  %s%s\n", format_double(result.peak_memory).c_str(),
      problem.memory_limit ? cat(" of ", format_double(*problem.memory_limit)).c_str() : "");
  std::printf("searched     %lld units in %s\n", static_cast<long long>(result.units),
              format_seconds(seconds).c_str());
}

Status check_fuse_options(const FuseCommandOptions& options) {
  BRAID_TRY(check_limits(options.limits));
  BRAID_TRY(check_outputs({{"--out", options.out}, {"--plot", options.plot}}));
  if (options.plot.empty() || options.plot.ends_with(".svg") || options.plot.ends_with(".html"))
    return ok_status();
  return invalid_input(cat("--plot ", options.plot, ": the name must end in .svg or .html"));
}

Status write_plot(const FuseCommandOptions& options, const PipelineProblem& problem,
                  const FuseResult& result) {
  if (options.plot.empty()) return ok_status();
  return write_file_atomic(options.plot,
                           options.plot.ends_with(".svg")
                               ? timeline_svg(problem, result.timeline)
                               : timeline_page(problem, result.timeline, options.problem));
}

Status run_fuse(const FuseCommandOptions& options) {
  BRAID_TRY(check_fuse_options(options));
  const Stopwatch watch(now_s);
  BRAID_ASSIGN(const PipelineProblem problem, load_fuse_problem(options));
  FuseOptions fuse_options;
  fuse_options.objective = objectives().at(options.objective);
  fuse_options.seed = options.seed;
  fuse_options.units = unit_options(options.limits, watch, options.limits.limit_s());
  BRAID_ASSIGN(const FuseResult result, fuse_pipelines(problem, fuse_options).at(options.problem));
  if (!options.out.empty())
    BRAID_TRY(write_file_atomic(options.out,
                                timeline_json(result.timeline, summary_of(result)).dump() + "\n"));
  BRAID_TRY(write_plot(options, problem, result));
  if (options.json) {
    std::printf("%s\n", report_json(options, result, watch.elapsed_s()).dump().c_str());
  } else {
    print_fuse_text(problem, result, watch.elapsed_s());
  }
  return ok_status();
}

Action define_fuse(CLI::App& app) {
  auto options = std::make_shared<FuseCommandOptions>();
  std::vector<std::string> names;
  for (const auto& [name, objective] : objectives()) names.push_back(name);
  app.add_option("PROBLEM", options->problem, "problem file: JSON")->required();
  app.add_option("--out", options->out, "write the schedule to this file");
  app.add_option("--plot", options->plot,
                 "draw the schedule and its memory: FILE.svg or FILE.html");
  define_search_options(app, options->limits, options->seed);
  auto* limit = app.add_option("--memory-limit", options->memory_limit,
                               "activation memory of each node; replaces the file's");
  app.add_flag("--split-backward", options->split_backward,
               "cut backwards into input and weight gradients, halves where the file says nothing");
  app.add_option("--objective", options->objective,
                 "latency, or memory: the least peak at the best makespan found")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  app.add_flag("--json", options->json, "print one JSON object");
  return [options, limit] {
    options->has_memory_limit = limit->count() > 0;
    return run_fuse(*options);
  };
}

}  // namespace

extern const Command kFuseCommand;
const Command kFuseCommand = {"fuse", "fuse pipelines into one schedule (docs/fuse.md)",
                              define_fuse};

}  // namespace braid

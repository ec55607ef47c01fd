// braid simulate: prices one step of a configuration under a plan, and shows what runs when.
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "braid/commands.h"
#include "braid/config_inputs.h"
#include "braid/outputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/limits.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "plan/placement.h"
#include "plan/plan_text.h"
#include "plan/validate.h"
#include "pricing/measured.h"
#include "search/migration.h"
#include "sim/carried_time.h"
#include "sim/overlap.h"
#include "sim/recorded.h"
#include "sim/simulate.h"
#include "sim/trace_output.h"

namespace braid {
namespace {

constexpr int kMostSteps = 1000;

struct SimulateArguments {
  std::vector<std::string> inputs;  // files, then key=value
  std::string plan, trace_out, html_out, lengths, calibration;
  std::vector<std::string> batch;  // plan files
  int64_t step = -1;
  uint64_t seed = 0;
  double length_correlation = kLengthCorrelation;
  int64_t order_rank = -1;
  int steps = 1;
  bool json = false, print_program = false, benchmark = false, free_prefixes = false;
};

// The plan file of the command line, else what the configuration states, else one device. Errors: a
// configuration that asks for a search, which is another command's.
Result<ExecutionPlan> chosen_plan(const SimulateArguments& arguments, const Config& config,
                                  const PlanningProblem& problem) {
  if (!arguments.plan.empty()) {
    BRAID_ASSIGN(const std::string text, read_file(arguments.plan));
    BRAID_ASSIGN(ExecutionPlan plan, parse_plan(text, arguments.plan, &problem.cluster));
    BRAID_TRY(validate(plan, problem).at(arguments.plan));
    return plan;
  }
  const int devices = device_count(problem.cluster);
  if (const char* key = searching_key(config); key != nullptr && devices > 1)
    return invalid_input(cat(
        key,
        ": asks for a search, and one plan is simulated; search it with 'braid plan "
        "CONFIG --out PLAN.yaml' and give --plan PLAN.yaml, or write a placement in its place: ",
        join(placement_names(), ", ")));
  BRAID_ASSIGN(const auto configured, configured_plan(config, problem, file_reader()));
  if (configured) return *configured;
  if (devices > 1)
    std::fprintf(stderr,
                 "note: no plan is stated: everything runs on one of the %d devices; give --plan, "
                 "or let 'braid plan' find one\n",
                 devices);
  return trivial_plan(problem);
}

// The recorded step that the command line names, if it does.
Result<std::optional<RecordedStep>> recorded_step(const SimulateArguments& arguments) {
  if (arguments.lengths.empty()) {
    if (arguments.step >= 0) return invalid_input("--step: picks a step of --lengths, add that");
    return std::optional<RecordedStep>();
  }
  BRAID_ASSIGN(const std::string text, read_file(arguments.lengths));
  BRAID_ASSIGN(RecordedStep recorded, parse_recorded_step(text, arguments.lengths, arguments.step));
  return std::optional<RecordedStep>(std::move(recorded));
}

SimOptions drawn_options(const SimulateArguments& arguments) {
  SimOptions options;
  options.seed = arguments.seed;
  options.length_correlation = arguments.length_correlation;
  options.free_prefixes = arguments.free_prefixes;
  return options;
}

SimOptions sim_options(const SimulateArguments& arguments, const Config& config, const Graph& graph,
                       const std::optional<RecordedStep>& recorded) {
  SimOptions options = drawn_options(arguments);
  options.events = !arguments.benchmark;
  options.memory_curve = !arguments.trace_out.empty() || !arguments.html_out.empty();
  if (!recorded) return options;
  options.lengths = recorded->lengths;
  options.idle_calls = idle_calls(config, graph, recorded->step);
  return options;
}

Status check_order_rank(int64_t rank, const Program& program) {
  if (rank >= 0 && program.scoring.is_on())
    return invalid_input(
        "--order: of a generation that is handed over the order of a rank depends on the others; "
        "--program prints the lists, --trace the step");
  if (rank < -1 || rank >= static_cast<int64_t>(program.ranks.size()))
    return invalid_input(cat("--order ", rank, ": the plan has ranks 0 to ",
                             static_cast<int64_t>(program.ranks.size()) - 1));
  return ok_status();
}

// Best of a few runs of the simulator alone, and the rate of instructions.
Status benchmark(const Program& program, const PlanningProblem& problem,
                 const Calibration& calibration, const SimOptions& options) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  int64_t instructions = 0;
  constexpr int kRuns = 5;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = Clock::now();
    BRAID_ASSIGN(const Trace trace, simulate(program, problem, calibration, options));
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    instructions = trace.instructions;
  }
  std::printf("%zu ranks, %lld instructions executed, %s, %.2f M instructions/s on one thread\n",
              program.ranks.size(), static_cast<long long>(instructions),
              format_seconds(best).c_str(), static_cast<double>(instructions) / best / 1e6);
  return ok_status();
}

Status write_files(const SimulateArguments& arguments, const std::string& title,
                   const Trace& trace) {
  if (!arguments.trace_out.empty())
    BRAID_TRY(write_file_atomic(arguments.trace_out, chrome_trace_json(trace).dump() + "\n"));
  if (!arguments.html_out.empty())
    BRAID_TRY(write_file_atomic(arguments.html_out, timeline_html(trace, title)));
  return ok_status();
}

// What is gained where a step leaves samples to the next; none where it does not.
Result<std::optional<CarriedTime>> carried(const SimulateArguments& arguments,
                                           const Program& program, const PlanningProblem& problem,
                                           const Calibration& calibration) {
  if (carried_steps(program.graph) == 0) return std::optional<CarriedTime>();
  BRAID_ASSIGN(const CarriedTime out,
               carried_time(program, problem, calibration, {.seed = arguments.seed}));
  return std::optional(out);
}

std::string carried_text(const CarriedTime& carried) {
  char less[16];
  std::snprintf(less, sizeof less, "%.1f %%", 100 * (1 - carried.carrying_s / carried.waiting_s));
  return cat("rollout.in_flight: a generation that leaves samples to the next step takes ",
             format_seconds(carried.carrying_s), ", one that waits for all ",
             format_seconds(carried.waiting_s), " (", less, " less, mean of ",
             CarriedOptions().steps, " steps)\n");
}

Status write_outputs(const SimulateArguments& arguments, const Program& program, const Trace& trace,
                     const std::optional<CarriedTime>& carried) {
  BRAID_TRY(write_files(arguments, cat("One step of ", program.graph.name), trace));
  if (arguments.order_rank >= 0) {
    std::printf("%s", executed_order(program, trace, arguments.order_rank).c_str());
  } else if (arguments.json) {
    Json summary = trace_summary_json(trace);
    summary["program_hash"] = program_hash(program);
    if (carried)
      summary["carried"] = {{"carrying_s", carried->carrying_s},
                            {"waiting_s", carried->waiting_s},
                            {"carried_tokens", carried->carried_tokens}};
    std::printf("%s\n", summary.dump(1).c_str());
  } else {
    std::printf("%s", gantt_text(trace).c_str());
    if (carried) std::printf("%s", carried_text(*carried).c_str());
  }
  return check_memory(trace);
}

// The steps after the recorded one, in so far as the record says which one that is.
OverlapOptions overlap_options(const SimulateArguments& arguments, const Config& config,
                               const Graph& graph, const std::optional<RecordedStep>& recorded) {
  OverlapOptions options;
  options.steps = arguments.steps;
  options.simulation = sim_options(arguments, config, graph, recorded);
  if (!recorded || recorded->step < 0) return options;
  for (int64_t step = 0; step < arguments.steps; ++step)
    options.idle_calls.push_back(idle_calls(config, graph, recorded->step + step));
  return options;
}

// Steps in a row, with the plan's staleness.
Status simulate_several(const SimulateArguments& arguments, const ExecutionPlan& plan,
                        const PlanningProblem& problem, const Calibration& calibration,
                        const OverlapOptions& options) {
  BRAID_ASSIGN(const OverlapResult result, simulate_steps(plan, problem, calibration, options));
  BRAID_TRY(
      write_files(arguments, cat(arguments.steps, " steps of ", problem.graph.name), result.trace));
  if (arguments.json) {
    Json summary = trace_summary_json(result.trace);
    summary["all_steps_s"] = summary["step_s"];
    summary["step_s"] = result.step_s;
    summary["steps"] = arguments.steps;
    summary["staleness"] = plan.staleness;
    std::printf("%s\n", summary.dump(1).c_str());
  } else {
    std::printf("%sa step every %s, staleness %lld\n", gantt_text(result.trace).c_str(),
                format_seconds(result.step_s).c_str(), static_cast<long long>(plan.staleness));
  }
  return check_memory(result.trace);
}

// What a batch says of one plan. Errors name its file.
struct BatchRow {
  std::string plan;
  Result<Trace> trace;
};

Result<Trace> simulate_file(const std::string& path, const PlanningProblem& problem,
                            const Calibration& calibration, const SimOptions& options) {
  const Result<std::string> text = read_file(path);
  if (!text.ok() && path.find('=') != std::string::npos)
    return invalid_input(cat(text.status().message(), "; write key=value before --batch"));
  BRAID_TRY(text.status());
  BRAID_ASSIGN(const ExecutionPlan plan, parse_plan(*text, path, &problem.cluster));
  BRAID_TRY(validate(plan, problem).at(path));
  const Result<Program> program = compile(plan, problem);
  BRAID_TRY(program.status().at(path));
  Result<Trace> trace = simulate(*program, problem, calibration, options);
  BRAID_TRY(trace.status().at(path));
  return trace;
}

Json batch_json(const BatchRow& row) {
  if (!row.trace.ok()) return {{"plan", row.plan}, {"error", row.trace.status().message()}};
  Json json = trace_summary_json(*row.trace);
  json["plan"] = row.plan;
  return json;
}

std::string batch_line(const BatchRow& row) {
  if (!row.trace.ok()) return cat(row.trace.status().message(), "\n");
  char numbers[80];
  std::snprintf(numbers, sizeof numbers, "%12.3f %10.1f %8.0f  ", row.trace->step_s,
                peak_bytes(*row.trace) / kGib, 100 * utilisation(*row.trace));
  const std::string problem = memory_problem(*row.trace);
  return cat(numbers, row.plan, problem.empty() ? "" : cat("  does not fit: ", problem), "\n");
}

// One step of each plan, with the same lengths. A plan that cannot be simulated is named in its
// place; the rest go on.
Status simulate_batch(const SimulateArguments& arguments, const PlanningProblem& problem,
                      const Calibration& calibration) {
  SimOptions options = drawn_options(arguments);
  options.events = false;
  if (!arguments.json) std::printf("%12s %10s %8s  plan\n", "step s", "peak GiB", "busy %");
  size_t failed = 0;
  Json rows = Json::array();
  for (const std::string& path : arguments.batch) {
    const BatchRow row{path, simulate_file(path, problem, calibration, options)};
    failed += row.trace.ok() ? 0 : 1;
    if (arguments.json)
      rows.push_back(batch_json(row));
    else
      std::printf("%s", batch_line(row).c_str());
  }
  if (arguments.json) std::printf("%s\n", rows.dump(1).c_str());
  if (failed == 0) return ok_status();
  return invalid_input(cat(failed, " of ", arguments.batch.size(),
                           " plans could not be simulated; their lines say why"));
}

Status check_free_prefixes(const SimulateArguments& arguments, const ExecutionPlan& plan) {
  if (!arguments.free_prefixes) return ok_status();
  if (plan.fusion.scored_prefixes)
    return invalid_input(
        "--free-prefixes: the plan has fusion.scored_prefixes, which scores beginnings at their "
        "cost; set it false");
  if (plan.fusion.migrate_below_samples != 0) return ok_status();
  return invalid_input(
      "--free-prefixes: the plan hands no generation over, so that nothing is scored before all "
      "samples are there; give it fusion: {migrate_below_samples: auto}");
}

Status check_batch(const SimulateArguments& arguments) {
  if (arguments.batch.empty()) return ok_status();
  const std::pair<const char*, bool> others[] = {
      {"--plan", !arguments.plan.empty()},          {"--trace", !arguments.trace_out.empty()},
      {"--html", !arguments.html_out.empty()},      {"--lengths", !arguments.lengths.empty()},
      {"--order", arguments.order_rank >= 0},       {"--steps", arguments.steps != 1},
      {"--print-program", arguments.print_program}, {"--benchmark", arguments.benchmark},
      {"--free-prefixes", arguments.free_prefixes}};
  for (const auto& [name, given] : others)
    if (given) return invalid_input(cat(name, " does not go with --batch"));
  return ok_status();
}

Status run_simulate(const SimulateArguments& arguments) {
  BRAID_TRY(check_batch(arguments));
  BRAID_TRY(check_outputs({{"--trace", arguments.trace_out}, {"--html", arguments.html_out}}));
  BRAID_ASSIGN(LoadedConfig loaded, read_config_inputs(arguments.inputs));
  BRAID_ASSIGN(loaded.config, planning_config(loaded.config));
  Config counted = loaded.config;  // the plan says how many devices there are, as plan.file does
  if (!arguments.plan.empty()) counted.plan.file = arguments.plan;
  BRAID_ASSIGN(PlanningProblem problem, make_problem(counted, file_reader()));
  if (!arguments.batch.empty()) {
    BRAID_ASSIGN(Calibration fitted, load_calibration(arguments.calibration));
    BRAID_ASSIGN(const Calibration calibration,
                 with_profiles(std::move(fitted), problem, file_reader()));
    return simulate_batch(arguments, problem, calibration);
  }
  BRAID_ASSIGN(ExecutionPlan plan, chosen_plan(arguments, loaded.config, problem));
  BRAID_ASSIGN(const std::optional<RecordedStep> recorded, recorded_step(arguments));
  take_engine_limits(loaded.config.rollout, recorded ? &*recorded : nullptr, &problem, &plan);
  BRAID_TRY(check_free_prefixes(arguments, plan));
  BRAID_ASSIGN(Calibration fitted, load_calibration(arguments.calibration));
  BRAID_ASSIGN(const Calibration calibration,
               with_profiles(std::move(fitted), problem, file_reader()));
  if (plan.fusion.migrate_below_samples == kAutoMigration) {
    BRAID_ASSIGN(plan, with_chosen_migration(plan, problem, calibration,
                                             {.free_prefixes = arguments.free_prefixes}));
    std::fprintf(stderr, "note: fusion.migrate_below_samples: auto is %lld here\n",
                 static_cast<long long>(plan.fusion.migrate_below_samples));
  }
  BRAID_ASSIGN(const Program program, compile(plan, problem));
  if (arguments.print_program) {
    std::printf("%shash %s\n", program_text(program).c_str(), program_hash(program).c_str());
    return ok_status();
  }
  BRAID_TRY(check_order_rank(arguments.order_rank, program));
  const SimOptions options = sim_options(arguments, loaded.config, problem.graph, recorded);
  for (const std::string& note : pricing_notes(calibration, problem))
    std::fprintf(stderr, "note: %s\n", note.c_str());
  if (program.predicts_lengths)
    std::fprintf(stderr,
                 "note: fusion.predicted_lengths: predictions correlate by %.2f with the mean "
                 "length of a prompt's responses (--length-correlation)\n",
                 options.length_correlation);
  if (recorded && loaded.config.algorithm.stop_kl > 0)
    std::fprintf(stderr,
                 "note: algorithm.stop_kl may have ended updates of the recorded run "
                 "early; its lengths do not tell\n");
  if (arguments.steps != 1)
    return simulate_several(arguments, plan, problem, calibration,
                            overlap_options(arguments, loaded.config, problem.graph, recorded));
  if (arguments.benchmark) return benchmark(program, problem, calibration, options);
  BRAID_ASSIGN(const Trace trace, simulate(program, problem, calibration, options));
  BRAID_ASSIGN(const auto gained, carried(arguments, program, problem, calibration));
  return write_outputs(arguments, program, trace, gained);
}

Action define_simulate(CLI::App& app) {
  auto arguments = std::make_shared<SimulateArguments>();
  app.add_option("inputs", arguments->inputs, "configuration files, then key.sub=value overrides")
      ->required();
  app.add_option("--plan", arguments->plan,
                 "execution plan (YAML); default: what the configuration states, else one device");
  app.add_option("--batch", arguments->batch,
                 "price each of these plan files, a line each, with the same lengths");
  app.add_option("--trace", arguments->trace_out, "write a Chrome trace for Perfetto to this file");
  app.add_option("--html", arguments->html_out, "write a timeline page to this file");
  app.add_flag("--json", arguments->json, "print a summary as JSON instead of the chart");
  app.add_option("--lengths", arguments->lengths,
                 "lengths of a recorded run: its rollouts.jsonl, or 'PROMPT RESPONSE' lines");
  app.add_option("--step", arguments->step, "step of the rollouts.jsonl; default: its first");
  app.add_option("--seed", arguments->seed, "of the drawn lengths")->check(not_negative);
  app.add_option("--length-correlation", arguments->length_correlation,
                 "of predicted lengths with true ones, 0 to 1 (rollout/length_correlation of a "
                 "run), for plans with fusion.predicted_lengths")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--free-prefixes", arguments->free_prefixes,
               "what-if, of plans with fusion.migrate_below_samples: scorers have scored all but "
               "the last token of a sample before it ends, at no cost (a bound of "
               "fusion.scored_prefixes)");
  app.add_option("--calibration", arguments->calibration,
                 "use this calibration (JSON) instead of the built-in one");
  app.add_option("--order", arguments->order_rank,
                 "print the instructions that this rank executes, in order");
  app.add_option("--steps", arguments->steps,
                 "so many steps in a row, generation ahead of learning by the plan's staleness; 1 "
                 "or at least 2 staleness + 2")
      ->check(CLI::Range(1, kMostSteps))
      ->capture_default_str();
  app.add_flag("--print-program", arguments->print_program, "print the instruction lists and stop");
  app.add_flag("--benchmark", arguments->benchmark, "time the simulator itself");
  return [arguments] { return run_simulate(*arguments); };
}

}  // namespace

extern const Command kSimulateCommand = {
    "simulate", "predict one step: time, memory and what runs when (docs/simulator.md)",
    define_simulate};

}  // namespace braid

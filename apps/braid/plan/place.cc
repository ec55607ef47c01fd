// braid place: the placements that have names side by side, and which one to choose.
#include <algorithm>
#include <iostream>
#include <memory>
#include <thread>

#include "advise/placements.h"
#include "base/text.h"
#include "braid/command.h"
#include "braid/config_inputs.h"
#include "braid/outputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/limits.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "plan/plan_text.h"
#include "plan/planned_keys.h"
#include "pricing/measured.h"

namespace braid {
namespace {

struct PlaceArguments {
  std::vector<std::string> inputs;
  std::string calibration, out;
  SearchLimits limits = {.max_units = 8};  // of each placement's search
  bool json = false;
};

constexpr double kPlaceMargin = 0.05;  // of a device's memory, as in braid plan
constexpr int64_t kPlaceJudged = 6;

SearchOptions place_options(const SearchLimits& limits) {
  SearchOptions options;
  options.units.max_units = limits.max_units;
  options.units.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.judged = kPlaceJudged;
  options.margin = kPlaceMargin;
  options.polish = false;
  return options;
}

Status write_recommended(const std::string& path, const PlanningProblem& problem,
                         const PlacementAdvice& advice) {
  if (path.empty()) return ok_status();
  if (!advice.recommended)
    return {Code::kInfeasible, cat("--out: ", path, " is not written: no placement fits")};
  return write_file_atomic(
      path, plan_to_yaml(advice.rows[*advice.recommended].best->plan, &problem.cluster));
}

Status run_place(const PlaceArguments& arguments) {
  BRAID_TRY(check_limits(arguments.limits));
  BRAID_TRY(check_outputs({{"--out", arguments.out}}));
  BRAID_ASSIGN(const LoadedConfig loaded, read_config_inputs(arguments.inputs));
  BRAID_ASSIGN(const Config config, planning_config(loaded.config));
  const ReadText read = file_reader();
  BRAID_ASSIGN(const PlanningProblem problem, make_problem(config, read));
  BRAID_ASSIGN(Calibration fitted, load_calibration(arguments.calibration));
  BRAID_ASSIGN(const Calibration calibration, with_profiles(std::move(fitted), problem, read));
  Config sizes = config;  // a placement that is stated is one of the rows
  sizes.placement = YamlNode();
  sizes.plan.file.clear();
  BRAID_ASSIGN(const PlanConstraints stated, plan_constraints(sizes, problem, read));
  const PlacementAdvice advice =
      compare_placements(problem, calibration, stated, place_options(arguments.limits));
  if (arguments.json) {
    std::cout << placements_json(advice).dump(2) << "\n";
  } else {
    for (const std::string& note : pricing_notes(calibration, problem))
      std::cout << "note: " << note << "\n";
    std::cout << placements_text(problem, advice);
  }
  return write_recommended(arguments.out, problem, advice);
}

Action define_place(CLI::App& app) {
  auto arguments = std::make_shared<PlaceArguments>();
  app.add_option("inputs", arguments->inputs, "configuration files, then key.sub=value overrides");
  app.add_option("--out", arguments->out,
                 "write the plan of the recommended placement to this file");
  app.add_option("--calibration", arguments->calibration,
                 "use this calibration ('braid calibrate --out') instead of the built-in one");
  app.add_option("--max-units", arguments->limits.max_units,
                 "work units of the search in each placement")
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "print one JSON object");
  return [arguments] { return run_place(*arguments); };
}

}  // namespace

extern const Command kPlaceCommand;
const Command kPlaceCommand = {
    "place", "compare the placements of a configuration (docs/which_placement.md)", define_place};

}  // namespace braid

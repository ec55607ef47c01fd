// braid plan: searches the execution plan of a configuration, compares, explains and re-plans.
#include <iostream>

#include "advise/plan_extras.h"
#include "advise/planning_text.h"
#include "base/text.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "braid/plan/diff.h"
#include "braid/plan/limits.h"
#include "braid/plan/lists.h"
#include "braid/plan/planning.h"
#include "host/clock.h"
#include "host/file.h"
#include "plan/plan_text.h"

namespace braid {
namespace {

Status import_plan(const PlanArguments& arguments) {
  ImportArguments import = arguments.import;
  import.inputs = arguments.inputs;
  import.json = arguments.json;
  import.calibration = arguments.calibration;
  return run_plan_import(import);
}

// After everything else is written and printed: the search is not lost where no fused plan wins.
Status write_fused(const PlanArguments& arguments, const Planning& planning,
                   const PlanExtras& extras) {
  if (arguments.fused_out.empty()) return ok_status();
  if (!extras.fusion)
    return invalid_input("--fused-out: the graph has not two training calls; leave the option out");
  if (!extras.fusion->wins())
    return {Code::kInfeasible, cat("--fused-out: ", arguments.fused_out, " is not written. ",
                                   fusion_text(*extras.fusion, planning.found.plan))};
  return write_file_atomic(arguments.fused_out,
                           plan_to_yaml(extras.fusion->fused->plan, &planning.problem.cluster));
}

Status run_plan(PlanArguments arguments) {
  BRAID_TRY(check_arguments(arguments));
  BRAID_TRY(check_outputs({{"--out", arguments.out}, {"--fused-out", arguments.fused_out}}));
  if (!arguments.import.framework.empty()) return import_plan(arguments);
  if (arguments.inputs.empty())
    return invalid_input("give a configuration file, or `diff A B` for two plans");
  PlanRequest& request = arguments.request;
  request.clock = now_s;
  request.fuses = !arguments.fused_out.empty();
  Planning planning;
  BRAID_TRY(plan_inputs(arguments, arguments.inputs, planning));
  PlanExtras extras;
  BRAID_TRY(add_extras(request, planning, extras));
  if (!arguments.what_if.empty()) {
    std::vector<std::string> inputs = arguments.inputs;
    inputs.insert(inputs.end(), arguments.what_if.begin(), arguments.what_if.end());
    BRAID_TRY(plan_inputs(arguments, inputs, extras.what_if.emplace()));
  }
  if (!arguments.out.empty())
    BRAID_TRY(write_file_atomic(arguments.out,
                                plan_to_yaml(planning.proposed.plan, &planning.problem.cluster)));
  if (arguments.json) {
    std::cout << planning_json(planning, request, extras, arguments.what_if).dump() << "\n";
  } else if (extras.exported) {
    std::cout << exported_lines(*extras.exported);
  } else {
    std::cout << planning_text(planning, request, extras, arguments.what_if);
  }
  return write_fused(arguments, planning, extras);
}

// An option that prints names that the planner knows, and ends.
void define_list(CLI::App& app, const char* option, void (*print)(), const char* help) {
  app.add_flag_callback(
      option,
      [print] {
        print();
        throw CLI::Success();
      },
      help);
}

void define_options(CLI::App& app, const std::shared_ptr<PlanArguments>& arguments) {
  define_list(app, "--list-gpus", list_gpus, "print the devices that cluster.gpu may name");
  define_list(app, "--list-models", list_models, "print the sizes that model.size may name");
  app.add_option("inputs", arguments->inputs, "configuration files, then key.sub=value overrides");
  app.add_option("--out", arguments->out, "write the plan to this file");
  app.add_option("--fused-out", arguments->fused_out,
                 "write the plan with fused training to this file, where that is faster");
  app.add_option("--calibration", arguments->calibration,
                 "use this calibration ('braid calibrate --out') instead of the built-in one");
  define_search_options(app, arguments->request.limits, arguments->request.seed);
  app.add_option("--margin", arguments->request.margin_percent,
                 "percent of every device's memory that the plan leaves free, where one can")
      ->capture_default_str();
  app.add_option("--simpler", arguments->request.simpler_percent,
                 "percent that a plan with fewer layouts may take longer and is still proposed")
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "print one JSON object");
  app.add_flag("--compare", arguments->request.compare,
               "price the plans of other systems beside ours");
  app.add_flag("--explain", arguments->request.explain,
               "per call: what limits it and the next best alternatives; what fused training, a "
               "hand-over of generation, predicted lengths, training beside scoring, and rollouts "
               "ahead where plan.staleness allows them, would gain");
  app.add_flag_callback(
      "--layouts-only", [arguments] { arguments->request.whole = false; },
      "search devices, layouts and offload alone, which is quicker; else also fused updates, a "
      "hand-over of generation, predicted lengths, and rollouts ahead where plan.staleness allows "
      "them, which are proposed where they save 1 % of a step");
  app.add_flag("--keep", arguments->request.keep,
               "keep what placement and parallel of the configuration fix");
  app.add_option("--what-if", arguments->what_if,
                 "key.sub=value...: plan again with these changes");
}

void define_framework_options(CLI::App& app, const std::shared_ptr<PlanArguments>& arguments) {
  ImportArguments& import = arguments->import;
  app.add_option("--import", import.framework,
                 "verl | openrlhf: the inputs are that framework's configuration; price it and say "
                 "the best changes in its keys");
  app.add_option("--export", arguments->request.export_to,
                 "verl | openrlhf: print the plan as that framework's configuration");
  app.add_option(
         "--read-script", import.read_script,
         "--import: how to read a launch script. sandbox: run it where it can neither write "
         "nor reach anything, with stand-ins for all programs that it starts; text: run "
         "nothing, evaluate its conditions here. Default: sandbox where one can be had, "
         "otherwise text. NAME=value arguments are the script's variables")
      ->check(CLI::IsMember({"sandbox", "text"}));
  app.add_flag_callback(
      "--run-script", [&import] { import.read_script = "sandbox"; },
      "--import: the same as --read-script sandbox");
  app.add_option("--gpus-per-node", import.gpus_per_node,
                 "--import: GPUs of a node, for what does not say it: a script that asks "
                 "nvidia-smi, groups of OpenRLHF that share nodes")
      ->check(CLI::Range(1, 1024));
  app.add_option("--model-size", import.model_sizes,
                 "--import: KEY=NAME or KEY=config.json, the size of the model that KEY names")
      ->take_all()
      ->expected(1);
  app.add_option("--framework-version", import.version,
                 "--import: whose defaults count, such as 0.7; otherwise as the keys tell");
  app.add_flag("--no-changes", import.no_changes,
               "--import: price the configuration and look for no better one");
  app.add_flag(
      "--keys", import.keys_only,
      "--import: print the keys that the file or the script states, as JSON; price nothing");
  app.add_option("--gpu", import.gpu, "--import: the devices, such as h100-80g");
  app.add_option("--prompt-length", import.prompt_length,
                 "--import: tokens, as in workload.prompt_length");
  app.add_option("--response-length", import.response_length,
                 "--import: tokens, as in workload.response_length");
}

Action define_plan(CLI::App& app) {
  auto arguments = std::make_shared<PlanArguments>();
  define_options(app, arguments);
  define_framework_options(app, arguments);
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* compare = app.add_subcommand("diff", "what two plan files do differently");
  compare->add_option("plans", *files, "two plan files, YAML or JSON")->required()->expected(2);
  return [arguments, files, compare] {
    return compare->parsed() ? run_plan_diff((*files)[0], (*files)[1]) : run_plan(*arguments);
  };
}

}  // namespace

extern const Command kPlanCommand;
const Command kPlanCommand = {
    "plan", "search the execution plan of a configuration (docs/planner.md)", define_plan};

}  // namespace braid

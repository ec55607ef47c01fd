#include "braid/plan/planning.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "braid/config_inputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/limits.h"
#include "cluster/kind_order.h"
#include "foreign/foreign.h"
#include "host/file.h"
#include "pricing/measured.h"
#include "search/priced_parts.h"

namespace braid {
namespace {

// Options that only a search has, or only an import, are refused by the other.
Status check_combination(const PlanArguments& arguments) {
  const ImportArguments& import = arguments.import;
  const bool imports = !import.framework.empty();
  const std::pair<const char*, bool> of_import[] = {
      {"--gpu", !import.gpu.empty()},
      {"--read-script", !import.read_script.empty()},
      {"--gpus-per-node", import.gpus_per_node > 0},
      {"--no-changes", import.no_changes},
      {"--keys", import.keys_only},
      {"--model-size", !import.model_sizes.empty()},
      {"--framework-version", !import.version.empty()},
      {"--prompt-length", !import.prompt_length.empty()},
      {"--response-length", !import.response_length.empty()}};
  for (const auto& [name, given] : of_import)
    if (given && !imports)
      return invalid_input(cat(name, " belongs to --import; a configuration of Braid says it in ",
                               "the sections cluster and workload"));
  const std::pair<const char*, bool> of_search[] = {
      {"--out", !arguments.out.empty()},
      {"--what-if", !arguments.what_if.empty()},
      {"--compare", arguments.request.compare},
      {"--explain", arguments.request.explain},
      {"--keep", arguments.request.keep},
      {"--layouts-only", !arguments.request.whole},
      {"--export", !arguments.request.export_to.empty()},
      {"--fused-out", !arguments.fused_out.empty()},
  };
  for (const auto& [name, given] : of_search)
    if (given && imports) return invalid_input(cat(name, " does not go with --import"));
  return ok_status();
}

}  // namespace

Status check_arguments(const PlanArguments& arguments) {
  BRAID_TRY(check_limits(arguments.request.limits));
  for (const std::string& change : arguments.what_if)
    if (const size_t equals = change.find('='); equals == std::string::npos || equals == 0)
      return invalid_input(cat("--what-if ", change, ": write KEY=VALUE, such as cluster.nodes=4"));
  for (const auto& [name, percent, most] :
       {std::make_tuple("--margin", arguments.request.margin_percent, 90.0),
        std::make_tuple("--simpler", arguments.request.simpler_percent, 100.0)})
    if (!(percent >= 0) || percent > most)
      return invalid_input(cat(name, " must be 0 to ", most, " percent, is ", percent));
  for (const std::string& name : {arguments.import.framework, arguments.request.export_to})
    if (!name.empty()) BRAID_TRY(find_framework(name).status());
  return check_combination(arguments);
}

Status plan_inputs(const PlanArguments& arguments, const std::vector<std::string>& inputs,
                   Planning& planning) {
  BRAID_ASSIGN(LoadedConfig loaded, read_config_inputs(inputs));
  BRAID_ASSIGN(loaded.config, planning_config(loaded.config));
  const ReadText read = file_reader();
  BRAID_ASSIGN(planning.problem, make_problem(loaded.config, read));
  BRAID_ASSIGN(Calibration fitted, load_calibration(arguments.calibration));
  BRAID_ASSIGN(planning.calibration, with_profiles(std::move(fitted), planning.problem, read));
  planning.notes = pricing_notes(planning.calibration, planning.problem);
  planning.keys = planned_keys(loaded.resolved, planning.problem);
  if (const auto& nodes = planning.problem.cluster.nodes;
      std::any_of(nodes.begin(), nodes.end(),
                  [&](const Node& node) { return node.gpu.key != nodes.front().gpu.key; }))
    planning.notes.push_back(
        cat(device_numbers_text(planning.problem.cluster),
            "; nodes of one kind are numbered one after the other, however they are listed"));
  BRAID_ASSIGN(CallPricer pricer, CallPricer::make(planning.problem, planning.calibration));
  planning.pricer = std::move(pricer);
  BRAID_ASSIGN(planning.constraints,
               arguments.request.keep
                   ? priced_constraints(loaded.config, *planning.pricer, read, SpaceOptions())
                   : plan_constraints(loaded.config, planning.problem, read));
  BRAID_ASSIGN(planning.given, configured_plan(loaded.config, planning.problem, read));
  planning.staleness = loaded.config.plan.staleness;
  return find_plan(arguments.request, planning);
}

}  // namespace braid

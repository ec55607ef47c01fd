#include "braid/plan/planning.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "advise/report.h"
#include "base/text.h"
#include "braid/config_inputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/whole.h"
#include "cluster/kind_order.h"
#include "foreign/foreign.h"
#include "host/file.h"
#include "pricing/measured.h"
#include "search/judge.h"
#include "search/priced_parts.h"

namespace braid {
namespace {

constexpr int kMostDevices = 1024;   // that the search for a smallest cluster looks at
constexpr int64_t kQuickUnits = 16;  // of its searches
constexpr int64_t kQuickJudged = 3;
constexpr int kFirstUnits = 4;           // of a search whose first one finds no plan
constexpr double kShareOfLayouts = 0.5;  // of the time limit, where parts are searched too
constexpr double kQuickSpace = 0.1;  // of it, for the options: else the parts wait for what is left
constexpr double kMostJudging = 0.6;     // of the time limit
constexpr double kPlansOfPolish = 60;    // judged, as a rule
constexpr double kSlowerTogether = 1.3;  // judging on several threads that share memory

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
      {"--compare", arguments.compare},
      {"--explain", arguments.explain},
      {"--keep", arguments.keep},
      {"--layouts-only", !arguments.whole},
      {"--export", !arguments.export_to.empty()},
      {"--fused-out", !arguments.fused_out.empty()},
  };
  for (const auto& [name, given] : of_search)
    if (given && imports) return invalid_input(cat(name, " does not go with --import"));
  return ok_status();
}

// What a search needs besides its units, as far as a first one tells.
struct Needs {
  double judging_s = 0;
  // However short the time, a few descents are made: a search without them has no plan.
  int least_units = kFirstUnits;
  int64_t judged = SearchOptions().judged;
};

// Of the search without parts, of which the options have been priced in `spent_s`.
double layouts_limit_s(const PlanArguments& arguments, const PlanningProblem& problem,
                       double spent_s) {
  const double limit_s = arguments.limits.limit_s();
  const bool shares = searches_parts(arguments, problem) && spent_s < kQuickSpace * limit_s;
  return limit_s * (shares ? kShareOfLayouts : 1);
}

// Stops the search when what is left of the time limit is needed for judging.
SearchOptions search_options(const PlanArguments& arguments, const Stopwatch& watch, double limit_s,
                             const Needs& needs) {
  SearchOptions options;
  options.seed = arguments.seed;
  options.judged = needs.judged;
  options.margin = arguments.margin_percent / 100;
  options.simpler = arguments.simpler_percent / 100;
  options.units =
      unit_options(arguments.limits, watch,
                   limit_s - std::min(needs.judging_s, kMostJudging * limit_s), needs.least_units);
  if (!arguments.limits.counts_units())
    options.late = [watch, limit_s](double share) { return watch.elapsed_s() >= share * limit_s; };
  return options;
}

bool fits_somewhere(const PlanningProblem& problem, const Calibration& calibration) {
  const auto pricer = CallPricer::make(problem, calibration);
  if (!pricer.ok()) return false;
  auto space = make_plan_space(problem, *pricer);
  if (!space.ok()) return false;
  SearchOptions options;
  options.units.max_units = kQuickUnits;
  options.judged = kQuickJudged;
  options.polish = false;
  return search_plans(*space, options, simulator_judge(problem, calibration)).ok();
}

// The keys of the configuration without which there is a plan, one at a time; empty: none of them
// alone is the reason.
std::string refusing_keys(const Planning& planning) {
  std::vector<std::string> keys;
  const auto attempt = [&](const char* key, const auto& lift) {
    PlanningProblem lifted = planning.problem;
    if (lift(lifted) && fits_somewhere(lifted, planning.calibration)) keys.emplace_back(key);
  };
  attempt("plan.host_memory_gib",
          [](PlanningProblem& p) { return std::exchange(p.host_memory_gib, 0) > 0; });
  attempt("plan.offload=never",
          [](PlanningProblem& p) { return !std::exchange(p.may_offload, true); });
  attempt("plan.memory_limit_gib",
          [](PlanningProblem& p) { return std::exchange(p.memory_limit_gib, 0) > 0; });
  return join(keys, ", or without ");
}

// Adds to "does not fit" what would.
Status with_smallest_cluster(const Status& status, const Planning& planning, bool keep) {
  if (status.code() != Code::kInfeasible) return status;
  const PlanningProblem& problem = planning.problem;
  if (planning.pricer && planning.pricer->capacity_bytes(problem.cluster.nodes.front().gpu) <= 0)
    return {status.code(),
            cat(status.message(),
                "; the limit leaves nothing beside the allocator's reserve and fixed "
                "buffers: raise plan.memory_limit_gib")};
  if (const std::string keys = keep ? std::string() : refusing_keys(planning); !keys.empty())
    return {status.code(), cat(status.message(), "; without ", keys, " there is a plan that fits")};
  const auto found =
      smallest_cluster(problem, kMostDevices, [&planning](const PlanningProblem& larger) {
        return fits_somewhere(larger, planning.calibration);
      });
  const Node& node = problem.cluster.nodes.front();
  if (!found)
    return {status.code(), cat(status.message(), "; no cluster of up to ", kMostDevices, " ",
                               node.gpu.key, " holds it")};
  if (found->devices <= device_count(problem.cluster))
    return {status.code(),
            cat(status.message(), keep ? "; without --keep there is one"
                                       : "; there is one: raise --time-limit or --max-units")};
  return {
      status.code(),
      cat(status.message(), "; the smallest cluster of these nodes that holds it: ", found->nodes,
          found->nodes == 1 ? " node" : " nodes", " of ", node.devices, " x ", node.gpu.key)};
}

// From one descent, and from the time that judging its plan takes: fewer plans are judged where the
// time limit is short for that. A number of units leaves their number alone.
Needs needs_of_search(const PlanArguments& arguments, Planning& planning, const Stopwatch& watch,
                      double limit_s) {
  SearchOptions options = search_options(arguments, watch, limit_s, {});
  options.units.max_units = 1;
  const auto first = search_plans(planning.space, options);
  if (!first.ok()) return {};
  const Stopwatch one_plan;
  if (!planning.judge(first->plan).ok()) return {};
  const double one_s = kSlowerTogether * one_plan.elapsed_s() / options.units.threads;
  Needs needs;
  needs.least_units = 1;
  if (!arguments.limits.counts_units())
    needs.judged = static_cast<int64_t>(
        std::clamp(kMostJudging * limit_s / one_s, 1.0, static_cast<double>(needs.judged)));
  needs.judging_s = one_s * (kPlansOfPolish + static_cast<double>(needs.judged));
  return needs;
}

// A plan without parts that the search for parts found, where it is faster than those before: in
// place of the proposed one, or behind it where that is simpler.
Status take_faster(const JudgedPlan& plain, double simpler, Planning& planning) {
  Found& found = planning.found;
  const Verdict& fastest = found.faster ? found.faster->verdict : *found.verdict;
  if (plain.verdict.step_s >= fastest.step_s) return ok_status();
  if (found.verdict->step_s <= (1 + simpler) * plain.verdict.step_s) {
    found.faster = plain;
  } else {
    found.plan = plain.plan;
    found.verdict = plain.verdict;
    found.faster.reset();
    BRAID_ASSIGN(found.choice, include_plan(planning.space, found.plan));
    found.cost = evaluate(planning.space, assignment_of(planning.space, found.choice));
  }
  found.proven = static_cast<double>(found.lower_bound_us) >=
                 kProvenShare * static_cast<double>(to_us(found.verdict->step_s));
  return ok_status();
}

Status search_plan(const PlanArguments& arguments, Planning& planning) {
  const Stopwatch watch;
  planning.watch = watch;
  planning.judge = remembering(simulator_judge(planning.problem, planning.calibration));
  SpaceOptions options;
  options.margin = arguments.margin_percent / 100;
  if (arguments.keep) {
    BRAID_ASSIGN(options, keeping(planning.constraints, std::move(options)));
  }
  BRAID_ASSIGN(planning.space, make_plan_space(planning.problem, *planning.pricer, options));
  const double limit_s = layouts_limit_s(arguments, planning.problem, watch.elapsed_s());
  const Needs needs = needs_of_search(arguments, planning, watch, limit_s);
  BRAID_ASSIGN(planning.found,
               search_plans(planning.space, search_options(arguments, watch, limit_s, needs),
                            planning.judge));
  planning.seconds = watch.elapsed_s();
  if (searches_parts(arguments, planning.problem)) {
    BRAID_ASSIGN(planning.whole, propose_whole(arguments, planning, watch));
    BRAID_TRY(take_faster(planning.whole->found.plain, arguments.simpler_percent / 100, planning));
  }
  planning.proposed = {planning.found.plan, *planning.found.verdict};
  if (planning.whole && planning.whole->wins()) planning.proposed = planning.whole->found.best;
  BRAID_ASSIGN(planning.detailed, simulate_plan_in_detail(planning.proposed.plan, planning.problem,
                                                          planning.calibration));
  return ok_status();
}

}  // namespace

Status check_arguments(const PlanArguments& arguments) {
  BRAID_TRY(check_limits(arguments.limits));
  for (const std::string& change : arguments.what_if)
    if (const size_t equals = change.find('='); equals == std::string::npos || equals == 0)
      return invalid_input(cat("--what-if ", change, ": write KEY=VALUE, such as cluster.nodes=4"));
  for (const auto& [name, percent, most] :
       {std::make_tuple("--margin", arguments.margin_percent, 90.0),
        std::make_tuple("--simpler", arguments.simpler_percent, 100.0)})
    if (!(percent >= 0) || percent > most)
      return invalid_input(cat(name, " must be 0 to ", most, " percent, is ", percent));
  for (const std::string& name : {arguments.import.framework, arguments.export_to})
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
               arguments.keep
                   ? priced_constraints(loaded.config, *planning.pricer, read, SpaceOptions())
                   : plan_constraints(loaded.config, planning.problem, read));
  BRAID_ASSIGN(planning.given, configured_plan(loaded.config, planning.problem, read));
  planning.staleness = loaded.config.plan.staleness;
  const Status status = search_plan(arguments, planning);
  return status.ok() ? status : with_smallest_cluster(status, planning, arguments.keep);
}

}  // namespace braid

// braid plan: searches the execution plan of a configuration, compares, explains and re-plans.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "advise/explain.h"
#include "advise/report.h"
#include "base/text.h"
#include "base/units.h"
#include "braid/commands.h"
#include "braid/outputs.h"
#include "braid/plan/diff.h"
#include "braid/plan/gain.h"
#include "braid/plan/lists.h"
#include "braid/plan/planning.h"
#include "braid/plan/whole.h"
#include "host/file.h"
#include "plan/executable.h"
#include "plan/plan_text.h"
#include "search/early_update.h"
#include "search/fuse.h"
#include "search/judge.h"
#include "search/migration.h"
#include "search/predicted.h"

namespace braid {
namespace {

constexpr int kNextBest = 3;

// Where four of five measured steps lay, of engines that the fit has seen or not; none for devices
// whose own times were measured, or that the fit has no steps of.
std::optional<std::pair<double, double>> step_interval(const Planning& planning) {
  for (const Node& node : planning.problem.cluster.nodes)
    if (!node.profile.empty() || node.gpu.architecture == "cpu") return std::nullopt;
  const auto half = interval_half_width(
      planning.calibration, generates(planning.problem.graph) ? "rl_step" : "train_step",
      engine_is_known(planning.calibration, planning.problem.train_engine));
  if (!half) return std::nullopt;
  const double step_s = planning.proposed.verdict.step_s;
  return std::pair(step_s * std::exp(-*half), step_s * std::exp(*half));
}

// "17.477 s": what a prediction can mean.
std::string step_text(double seconds) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << seconds << " s";
  return out.str();
}

std::string percent_text(double share) { return format_double(std::round(1e4 * share) / 100); }

// ---- The given configuration against the best

struct Given {
  Verdict verdict;
  bool nothing_to_gain = false;
};

Result<std::optional<Given>> judge_given(const Planning& planning) {
  if (!planning.given) return std::optional<Given>();
  BRAID_ASSIGN(const Verdict verdict, planning.judge(*planning.given));
  const double best_s = planning.proposed.verdict.step_s;
  return std::optional<Given>(
      Given{verdict, verdict.fits && nothing_to_gain(verdict.step_s, best_s)});
}

std::string given_text(const Planning& planning, const Given& given) {
  const Verdict& v = given.verdict;
  const double best_s = planning.proposed.verdict.step_s;
  std::string out = cat("configuration  step ", step_text(v.step_s), ", peak ",
                        format_bytes(v.peak_bytes), v.fits ? "" : cat(" (", v.reason, ")"), "\n");
  if (given.nothing_to_gain)
    return out + "nothing to gain: the configuration is within 3 % of the best plan\n";
  if (v.fits)
    out += cat("gain           ", format_double(std::round(100 * v.step_s / best_s) / 100), " x\n");
  for (const std::string& line : diff(*planning.given, planning.proposed.plan))
    out += cat("  ", line, "\n");
  return out;
}

// ---- Output

// Of a step, before the first call with a model.
double host_s(const Planning& planning) {
  return static_cast<double>(planning.space.fixed_us) / 1e6;
}

std::string interval_text(const Planning& planning) {
  const auto interval = step_interval(planning);
  if (!interval) return "";
  return cat("interval       ", step_text(interval->first), " to ", step_text(interval->second),
             ": four of five measured steps lay so near their prices\n");
}

// Of the device with the least left.
double spare_bytes(const Verdict& verdict) { return verdict.capacity_bytes - verdict.peak_bytes; }

std::string memory_text(const Planning& planning, double margin_percent) {
  const Verdict& v = planning.proposed.verdict;
  const double spare = spare_bytes(v) / v.capacity_bytes;
  std::string out =
      cat("peak memory    ", format_bytes(v.peak_bytes), " of ", format_bytes(v.capacity_bytes),
          ", ", format_bytes(spare_bytes(v)), " (", percent_text(spare), " %) to spare\n");
  if (planning.found.margin <= 0 && margin_percent > 0)
    out += cat("               no plan was found that leaves ", format_double(margin_percent),
               " % free; predictions of memory are this uncertain\n");
  return out;
}

// The plan that was passed over for a simpler one.
std::string faster_text(const Found& found) {
  if (!found.faster) return "";
  const double step_s = found.faster->verdict.step_s;
  std::string out = cat("faster plan    ", step_text(step_s), " (",
                        percent_text(1 - step_s / found.verdict->step_s),
                        " % less) with more layouts; --simpler 0 proposes it\n");
  for (const std::string& line : diff(found.plan, found.faster->plan)) out += cat("  ", line, "\n");
  return out;
}

Status executable(const Planning& planning) {
  return check_executable(planning.proposed.plan, planning.problem.graph);
}

void print_text(const Planning& planning, const PlanArguments& arguments) {
  const Verdict& v = planning.proposed.verdict;
  const bool with_parts = planning.whole && planning.whole->wins();
  std::cout << plan_table(planning.problem, planning.proposed.plan, planning.detailed)
            << "host           " << step_text(host_s(planning))
            << ", at the begin of the step: data, rewards, logging\nstep           "
            << step_text(v.step_s) << " (calls overlap: they do not add up to it), devices busy "
            << std::lround(100 * v.utilisation) << " %\n"
            << interval_text(planning) << memory_text(planning, arguments.margin_percent)
            << "lower bound    " << bound_text(planning) << "\n"
            << searched_text(planning, arguments) << parts_text(planning)
            << (with_parts ? "" : faster_text(planning.found));
  for (const std::string& note : planning.notes) std::cout << "note: " << note << "\n";
  for (const std::string& note : key_notes(planning.keys)) std::cout << "note: " << note << "\n";
  if (const Status trains = executable(planning); !trains.ok())
    std::cout << "train          " << trains.message() << "\n";
}

OrderedJson log_json(const Found& found) {
  OrderedJson log = OrderedJson::array();
  for (const LogEntry& entry : found.log)
    log.push_back({{"unit", entry.unit},
                   {"seconds", entry.elapsed_s},
                   {"step_s", entry.step_s},
                   {"fits", entry.fits}});
  return log;
}

OrderedJson keys_json(const PlannedKeys& keys) {
  const auto entries = [](const std::vector<PlannedKeys::Entry>& list) {
    OrderedJson out = OrderedJson::array();
    for (const PlannedKeys::Entry& entry : list)
      out.push_back({{"key", entry.key}, {"why", entry.why}});
    return out;
  };
  return {{"read", keys.read},
          {"without_effect", entries(keys.without_effect)},
          {"not_priced", entries(keys.not_priced)}};
}

OrderedJson result_json(const Planning& planning, const PlanArguments& arguments) {
  const Found& found = planning.found;
  const Verdict& v = planning.proposed.verdict;
  const ExecutionPlan& plan = planning.proposed.plan;
  OrderedJson json;
  json["version"] = kOutputVersion;
  json["step_s"] = v.step_s;
  if (const auto interval = step_interval(planning))
    json["interval_s"] = {interval->first, interval->second};
  json["fits"] = v.fits;
  json["peak_gib"] = v.peak_bytes / kGib;
  json["limit_gib"] = v.capacity_bytes / kGib;
  json["spare_gib"] = spare_bytes(v) / kGib;
  json["margin"] = found.margin;
  json["utilisation"] = v.utilisation;
  json["evaluator_s"] = static_cast<double>(found.cost.time_us) / 1e6;
  json["lower_bound_s"] = bound_s(planning);
  json["gap"] = std::max(0.0, 1 - bound_s(planning) / v.step_s);
  json["proven"] = found.proven && !(planning.whole && planning.whole->wins());
  json["evaluations"] = found.evaluations;
  json["bounds"] = found.bounds;
  json["judged"] = found.judged.size();
  json["units"] = found.units;
  json["seed"] = arguments.seed;
  json["seconds"] = planning.seconds;
  for (size_t c = 0; c < planning.space.calls.size(); ++c) {
    json["calls"][plan.calls[c].call] = v.call_s[c];
    json["begins"][plan.calls[c].call] = planning.detailed.begin_s[c];
  }
  json["host_s"] = host_s(planning);
  json["notes"] = planning.notes;
  json["keys"] = keys_json(planning.keys);
  json["plan"] = plan_json(plan);
  const Status trains = executable(planning);
  json["executable"] = trains.ok();
  if (!trains.ok()) json["not_executable"] = trains.message();
  if (found.faster)
    json["faster"] = {{"step_s", found.faster->verdict.step_s},
                      {"plan", plan_json(found.faster->plan)}};
  if (planning.whole) json["whole"] = whole_json(planning);
  json["log"] = log_json(found);
  return json;
}

std::vector<CompareRow> compare(const Planning& planning) {
  std::vector<CompareRow> rows = {
      {"braid", "this search", planning.proposed.plan, planning.proposed.verdict, {}}};
  if (planning.given) {
    CompareRow row{"configuration", "as configured", planning.given, {}, {}};
    const auto verdict = planning.judge(*planning.given);
    if (verdict.ok()) row.verdict = *verdict;
    if (!verdict.ok()) row.reason = verdict.status().message();
    rows.push_back(std::move(row));
  }
  const auto others = compare_baselines(planning.problem, *planning.pricer, planning.judge);
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

std::string what_if_text(const Planning& before, const Planning& after,
                         const std::vector<std::string>& changes) {
  const double was_s = before.proposed.verdict.step_s, is_s = after.proposed.verdict.step_s;
  std::string out =
      cat("what if ", join(changes, ", "), ": step ", step_text(was_s), " -> ", step_text(is_s),
          " (", is_s < was_s ? "" : "+", percent_text(is_s / was_s - 1), " %)\n");
  for (const std::string& line : diff(before.proposed.plan, after.proposed.plan))
    out += cat("  ", line, "\n");
  return out;
}

OrderedJson what_if_json(const Planning& before, const Planning& after,
                         const PlanArguments& arguments) {
  OrderedJson json = result_json(after, arguments);
  json["changes"] = arguments.what_if;
  json["ratio"] = after.proposed.verdict.step_s / before.proposed.verdict.step_s;
  json["diff"] = diff(before.proposed.plan, after.proposed.plan);
  return json;
}

// What was asked for beyond the plan itself.
struct Extras {
  std::optional<Given> given;
  std::vector<CompareRow> rows;
  std::vector<CallExplanation> explanations;
  std::optional<FusionProposal> fusion;
  std::optional<AheadProposal> ahead;
  std::optional<Result<MigrationProposal>> migration;
  std::optional<Result<PredictedGain>> predicted;
  std::optional<Result<EarlyUpdateGain>> early_update;
  std::optional<Planning> what_if;
  std::optional<Export> exported;
};

void print_json(const Planning& planning, const PlanArguments& arguments, const Extras& extras) {
  OrderedJson json = result_json(planning, arguments);
  if (extras.given)
    json["given"] = {{"step_s", extras.given->verdict.step_s},
                     {"peak_gib", extras.given->verdict.peak_bytes / kGib},
                     {"fits", extras.given->verdict.fits},
                     {"nothing_to_gain", extras.given->nothing_to_gain},
                     {"diff", diff(*planning.given, planning.proposed.plan)}};
  if (arguments.compare) json["compare"] = compare_json(planning.problem, extras.rows);
  if (arguments.explain) json["explain"] = explain_json(extras.explanations);
  if (extras.fusion) json["fusion"] = fusion_json(*extras.fusion);
  if (extras.ahead) json["staleness"] = ahead_json(*extras.ahead);
  if (extras.migration) json["hand_over"] = migration_json(*extras.migration);
  if (extras.predicted) json["predicted_lengths"] = predicted_json(*extras.predicted);
  if (extras.early_update)
    json["training_beside_scoring"] = early_update_json(*extras.early_update);
  if (extras.exported)
    json["export"] = {{"framework", arguments.export_to},
                      {"text", extras.exported->text},
                      {"not_expressed", extras.exported->not_expressed},
                      {"beside", extras.exported->beside}};
  if (extras.what_if) json["what_if"] = what_if_json(planning, *extras.what_if, arguments);
  std::cout << json.dump() << "\n";
}

// Which plan the lines below are about, where it is not the proposed one.
std::string explained_text(const Planning& planning) {
  if (!planning.whole || !planning.whole->wins()) return "";
  return cat("of the plan without ", parts_text(planning.proposed.plan), ":\n");
}

void print_extras(const Planning& planning, const PlanArguments& arguments, const Extras& extras) {
  print_text(planning, arguments);
  if (extras.given) std::cout << given_text(planning, *extras.given);
  if (arguments.compare) std::cout << "\n" << compare_text(planning.problem, extras.rows);
  if (arguments.explain)
    std::cout << "\n" << explained_text(planning) << explain_text(extras.explanations);
  if (extras.fusion) std::cout << fusion_text(*extras.fusion, planning.found.plan);
  if (extras.migration) std::cout << migration_text(*extras.migration);
  if (extras.predicted) std::cout << predicted_text(*extras.predicted);
  if (extras.early_update) std::cout << early_update_text(*extras.early_update);
  if (extras.ahead) std::cout << ahead_text(*extras.ahead);
  if (extras.what_if)
    std::cout << "\n" << what_if_text(planning, *extras.what_if, arguments.what_if);
}

// The configuration alone, so that it can be sent into a file; what is lost as comments.
void print_export(const Export& exported) {
  std::cout << exported.text;
  for (const std::string& lost : exported.not_expressed)
    std::cout << "# not expressed: " << lost << "\n";
  for (const std::string& line : exported.beside) std::cout << "# " << line << "\n";
}

Status import_plan(const PlanArguments& arguments) {
  ImportArguments import = arguments.import;
  import.inputs = arguments.inputs;
  import.json = arguments.json;
  import.calibration = arguments.calibration;
  return run_plan_import(import);
}

Status fuse_training(const PlanArguments& arguments, const Planning& planning, Extras& extras) {
  if (!arguments.explain && arguments.fused_out.empty()) return ok_status();
  FusionOptions options;
  options.margin = planning.found.margin;
  if (arguments.keep)
    options.allowed = [&planning](const CallPlan& entry) {
      return keeps(entry, planning.constraints);
    };
  BRAID_ASSIGN(extras.fusion,
               propose_fusion(planning.problem, planning.found.plan, planning.found.verdict->step_s,
                              planning.judge, options));
  return ok_status();
}

// After everything else is written and printed: the search is not lost where no fused plan wins.
Status write_fused(const PlanArguments& arguments, const Planning& planning, const Extras& extras) {
  if (arguments.fused_out.empty()) return ok_status();
  if (!extras.fusion)
    return invalid_input("--fused-out: the graph has not two training calls; leave the option out");
  if (!extras.fusion->wins())
    return {Code::kInfeasible, cat("--fused-out: ", arguments.fused_out, " is not written. ",
                                   fusion_text(*extras.fusion, planning.found.plan))};
  return write_file_atomic(arguments.fused_out,
                           plan_to_yaml(extras.fusion->fused->plan, &planning.problem.cluster));
}

Status run_plan(const PlanArguments& arguments) {
  BRAID_TRY(check_arguments(arguments));
  BRAID_TRY(check_outputs({{"--out", arguments.out}, {"--fused-out", arguments.fused_out}}));
  if (!arguments.import.framework.empty()) return import_plan(arguments);
  if (arguments.inputs.empty())
    return invalid_input("give a configuration file, or `diff A B` for two plans");
  Planning planning;
  BRAID_TRY(plan_inputs(arguments, arguments.inputs, planning));
  Extras extras;
  BRAID_ASSIGN(extras.given, judge_given(planning));
  if (arguments.compare) extras.rows = compare(planning);
  if (arguments.explain) {
    BRAID_ASSIGN(extras.explanations,
                 explain(planning.space, planning.found.choice, *planning.found.verdict, kNextBest,
                         planning.calibration));
  }
  BRAID_TRY(fuse_training(arguments, planning, extras));
  BRAID_ASSIGN(extras.ahead, rollouts_ahead(arguments, planning));
  if (arguments.explain && generates(planning.problem.graph)) {
    extras.migration =
        propose_migration(planning.found.plan, planning.problem, planning.calibration);
    extras.predicted = predicted_gain(planning.found.plan, planning.problem, planning.calibration);
  }
  if (arguments.explain)
    extras.early_update =
        early_update_gain(planning.found.plan, planning.problem, planning.calibration);
  if (!arguments.what_if.empty()) {
    std::vector<std::string> inputs = arguments.inputs;
    inputs.insert(inputs.end(), arguments.what_if.begin(), arguments.what_if.end());
    BRAID_TRY(plan_inputs(arguments, inputs, extras.what_if.emplace()));
  }
  if (!arguments.export_to.empty()) {
    BRAID_ASSIGN(extras.exported,
                 export_config(arguments.export_to, planning.problem, planning.found.plan));
  }
  if (!arguments.out.empty())
    BRAID_TRY(write_file_atomic(arguments.out,
                                plan_to_yaml(planning.proposed.plan, &planning.problem.cluster)));
  if (arguments.json) {
    print_json(planning, arguments, extras);
  } else if (extras.exported) {
    print_export(*extras.exported);
  } else {
    print_extras(planning, arguments, extras);
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
  define_search_options(app, arguments->limits, arguments->seed);
  app.add_option("--margin", arguments->margin_percent,
                 "percent of every device's memory that the plan leaves free, where one can")
      ->capture_default_str();
  app.add_option("--simpler", arguments->simpler_percent,
                 "percent that a plan with fewer layouts may take longer and is still proposed")
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "print one JSON object");
  app.add_flag("--compare", arguments->compare, "price the plans of other systems beside ours");
  app.add_flag("--explain", arguments->explain,
               "per call: what limits it and the next best alternatives; what fused training, a "
               "hand-over of generation, predicted lengths, training beside scoring, and rollouts "
               "ahead where plan.staleness allows them, would gain");
  app.add_flag_callback(
      "--layouts-only", [arguments] { arguments->whole = false; },
      "search devices, layouts and offload alone, which is quicker; else also fused updates, a "
      "hand-over of generation, predicted lengths, and rollouts ahead where plan.staleness allows "
      "them, which are proposed where they save 1 % of a step");
  app.add_flag("--keep", arguments->keep,
               "keep what placement and parallel of the configuration fix");
  app.add_option("--what-if", arguments->what_if,
                 "key.sub=value...: plan again with these changes");
}

void define_framework_options(CLI::App& app, const std::shared_ptr<PlanArguments>& arguments) {
  ImportArguments& import = arguments->import;
  app.add_option("--import", import.framework,
                 "verl | openrlhf: the inputs are that framework's configuration; price it and say "
                 "the best changes in its keys");
  app.add_option("--export", arguments->export_to,
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

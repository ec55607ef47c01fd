// braid plan --import FRAMEWORK FILE [key=value...]: what a configuration of another framework
// costs, and how to change it.
#include "braid/plan/import.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include "advise/foreign_changes.h"
#include "advise/gain.h"
#include "advise/report.h"
#include "base/text.h"
#include "base/units.h"
#include "braid/config_inputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/foreign_input.h"
#include "foreign/foreign.h"
#include "foreign/keys/keys.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "plan/plan_text.h"

namespace braid {
namespace {

Result<std::optional<LengthDistribution>> stated_lengths(const std::string& text, const char* key) {
  if (text.empty()) return std::optional<LengthDistribution>();
  BRAID_ASSIGN(const YamlNode root, parse_yaml(cat("value: ", text), cat("--", key)));
  BRAID_ASSIGN(const LengthDistribution lengths,
               read_lengths(*root.find("value"), key, 0, file_reader()));
  return std::optional(lengths);
}

void print_read(const ForeignInput& configuration) {
  ForeignKeys shown = configuration.stated;
  for (auto& [key, value] : shown) value = shown_value(key, value);
  Json json = {{"keys", shown}, {"notes", configuration.notes}};
  if (!configuration.script_way.empty()) json["script"] = configuration.script_way;
  std::cout << json.dump(1) << "\n";
}

Result<ImportOptions> import_options(const ImportArguments& arguments) {
  ImportOptions options;
  options.gpu = arguments.gpu;
  if (arguments.gpus_per_node > 0) options.gpus_per_node = arguments.gpus_per_node;
  options.read = file_reader();
  options.version = arguments.version;
  for (const std::string& item : arguments.model_sizes) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == item.size())
      return invalid_input(cat("--model-size: '", item, "' is not KEY=NAME or KEY=config.json"));
    options.model_sizes[item.substr(0, equals)] = item.substr(equals + 1);
  }
  BRAID_ASSIGN(options.prompt, stated_lengths(arguments.prompt_length, "prompt-length"));
  BRAID_ASSIGN(options.response, stated_lengths(arguments.response_length, "response-length"));
  return options;
}

// "71.2 GiB of 76.0 GiB, fits with 6 % to spare".
std::string memory_text(const Verdict& v) {
  const double margin = 1 - v.peak_bytes / v.capacity_bytes;
  return cat(
      format_bytes(v.peak_bytes), " of ", format_bytes(v.capacity_bytes),
      v.fits ? cat(", fits with ", std::lround(100 * margin), " % to spare") : ", does not fit");
}

// What a change gains; times are compared only with a configuration that can run.
std::string gain_text(const Verdict& now, const Verdict& then) {
  if (!now.fits) return "";
  return cat(" (", format_double(std::round(100 * now.step_s / then.step_s) / 100), " x)");
}

// One unit and as many digits as in the table of calls.
std::string seconds_text(double seconds) { return cat(fixed_text(seconds, 3), " s"); }

// "71.2 GiB on device 3", of the devices of a call.
std::string fullest_text(const std::vector<double>& peaks, const DeviceMesh& mesh) {
  const DeviceId most =
      *std::max_element(mesh.devices.begin(), mesh.devices.end(),
                        [&](DeviceId a, DeviceId b) { return peaks[a.value] < peaks[b.value]; });
  return cat(format_bytes(peaks[most.value]), " on device ", most);
}

// What became of the keys; those that a person has to know of by name.
void print_keys(const KeyReport& keys) {
  std::cout << "keys: " << keys.read.size() << " read, " << keys.without_effect.size()
            << " without effect, " << keys.not_priced.size() << " not priced, "
            << keys.unknown.size() << " unknown\n";
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const KeyReport::Entry& entry : keys.not_priced) by_reason[entry.why].push_back(entry.key);
  for (const auto& [why, names] : by_reason)
    std::cout << "not priced: " << join(names, ", ") << " (" << why << ")\n";
  for (const std::string& key : keys.unknown) std::cout << "unknown key: " << key << "\n";
}

void print_priced(const PricedImport& priced) {
  const ImportedPlan& imported = priced.imported;
  const Verdict& v = priced.detailed.verdict;
  std::cout << "defaults of " << imported.version << "\n";
  std::cout << plan_table(imported.problem, imported.plan, priced.detailed);
  for (size_t c = 0; c < imported.plan.calls.size(); ++c)
    std::cout << (c == 0 ? "peaks " : ", ") << imported.plan.calls[c].call << " "
              << fullest_text(priced.detailed.peak_bytes[c], imported.plan.calls[c].mesh);
  std::cout << "\nstep " << seconds_text(v.step_s)
            << " (calls overlap: they do not add up to it)\npeak memory " << memory_text(v) << "\n";
  if (!v.fits) std::cout << v.reason << "\n";
  for (const std::string& note : imported.notes) std::cout << "note: " << note << "\n";
  print_keys(imported.keys);
}

std::string value_now(const ForeignKeys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "(unset)" : found->second;
}

void print_change(const Framework& framework, const ForeignKeys& keys, const KeyChange& change,
                  const Verdict& now) {
  const std::string keys_text =
      cat(change.changed.size(), change.changed.size() == 1 ? " key" : " keys");
  std::cout << (change.verdict.fits ? "best change of " : "no change fits; least memory by ")
            << keys_text << ": step " << seconds_text(change.verdict.step_s)
            << gain_text(now, change.verdict) << ", peak memory " << memory_text(change.verdict)
            << "\n";
  for (const auto& [key, value] : change.changed)
    std::cout << "  " << key << ": " << value_now(keys, key) << " -> " << value << "\n";
  for (const std::string& line : framework.beside(change.changed))
    std::cout << "  " << line << "\n";
}

Json verdict_json(const Verdict& v) {
  return {{"step_s", v.step_s},
          {"peak_gib", v.peak_bytes / kGib},
          {"limit_gib", v.capacity_bytes / kGib},
          {"fits", v.fits},
          {"reason", v.reason}};
}

Json entries_json(const std::vector<KeyReport::Entry>& entries) {
  Json json = Json::array();
  for (const KeyReport::Entry& entry : entries)
    json.push_back({{"key", entry.key}, {"why", entry.why}});
  return json;
}

Json keys_json(const KeyReport& keys) {
  return {{"read", keys.read},
          {"without_effect", entries_json(keys.without_effect)},
          {"not_priced", entries_json(keys.not_priced)},
          {"unknown", keys.unknown}};
}

Json problem_json(const PlanningProblem& problem) {
  Json models, nodes = Json::array();
  for (const auto& [role, model] : problem.models) models[role] = model.spec.name;
  for (const Node& node : problem.cluster.nodes) nodes.push_back(node.devices);
  const Workload& work = problem.workload;
  return {{"graph", problem.graph.name},
          {"devices_of_nodes", nodes},
          {"models", models},
          {"prompts", work.prompts},
          {"samples_per_prompt", work.samples_per_prompt},
          {"minibatches", work.minibatches},
          {"epochs", work.epochs},
          {"longest_prompt", longest_tokens(work.prompt)},
          {"longest_response", longest_tokens(work.response)},
          {"train_engine", problem.train_engine},
          {"generate_engine", problem.generate_engine}};
}

Json result_json(const Framework& framework, const PricedImport& now, const std::string& script_way,
                 const std::vector<KeyChange>& changes) {
  Json json = verdict_json(now.detailed.verdict);
  if (!script_way.empty()) json["script"] = script_way;
  json["version"] = now.imported.version;
  json["keys"] = keys_json(now.imported.keys);
  json["problem"] = problem_json(now.imported.problem);
  for (size_t c = 0; c < now.imported.plan.calls.size(); ++c) {
    const std::string& name = now.imported.plan.calls[c].call;
    json["calls"][name] = now.detailed.verdict.call_s[c];
    json["begins"][name] = now.detailed.begin_s[c];
    for (const double bytes : now.detailed.peak_bytes[c])
      json["peak_gib_by_device"][name].push_back(bytes / kGib);
  }
  json["notes"] = now.imported.notes;
  json["plan"] = plan_json(now.imported.plan);
  json["changes"] = Json::array();
  for (const KeyChange& change : changes) {
    Json entry = verdict_json(change.verdict);
    entry["keys"] = change.changed;
    entry["beside"] = framework.beside(change.changed);
    json["changes"].push_back(entry);
  }
  return json;
}

void print_changes(const Framework& framework, const ForeignKeys& keys, const Verdict& now,
                   const std::vector<KeyChange>& changes, int64_t priced) {
  const bool gains = !changes.empty() &&
                     (!now.fits || !nothing_to_gain(now.step_s, changes.back().verdict.step_s));
  if (gains) {
    for (const KeyChange& change : changes) print_change(framework, keys, change, now);
  } else if (now.fits) {
    std::cout << "nothing to gain: within 3 % of the best of " << priced << " configurations\n";
  } else {
    std::cout << "none of " << priced << " changes of its keys fits or needs less memory\n";
  }
}

}  // namespace

Status run_plan_import(const ImportArguments& arguments) {
  BRAID_ASSIGN(const Framework* framework, find_framework(arguments.framework));
  if (arguments.inputs.empty())
    return invalid_input(cat("--import ", framework->name, ": name the configuration to read"));
  BRAID_ASSIGN(const ForeignInput configuration,
               read_foreign_input(
                   *framework, {arguments.inputs, arguments.read_script, arguments.gpus_per_node}));
  const ForeignKeys& keys = configuration.keys;
  if (arguments.keys_only) {
    print_read(configuration);
    return ok_status();
  }
  BRAID_ASSIGN(const ImportOptions options, import_options(arguments));
  BRAID_ASSIGN(const Calibration calibration, load_calibration(arguments.calibration));
  BRAID_ASSIGN(PricedImport now, price_import(*framework, keys, options, calibration));
  BRAID_TRY(check_override_names(now.imported.keys, configuration.overrides, *framework)
                .at("command line"));
  now.imported.notes.insert(now.imported.notes.begin(), configuration.notes.begin(),
                            configuration.notes.end());
  ForeignChanges found;
  if (!arguments.no_changes) {
    BRAID_ASSIGN(found, best_foreign_changes(*framework, keys, options, calibration, now));
  }
  if (arguments.json) {
    std::cout << result_json(*framework, now, configuration.script_way, found.changes).dump(1)
              << "\n";
    return ok_status();
  }
  print_priced(now);
  if (!arguments.no_changes)
    print_changes(*framework, keys, now.detailed.verdict, found.changes, found.priced);
  return ok_status();
}

}  // namespace braid

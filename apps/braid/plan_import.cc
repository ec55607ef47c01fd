// braid plan --import FRAMEWORK FILE [key=value...]: what a configuration of another framework
// costs, and how to change it.
#include "plan_import.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/units.h"
#include "config_inputs.h"
#include "host/file.h"
#include "interop/foreign.h"
#include "plan/make_problem.h"
#include "plan/plan_text.h"
#include "plan_gain.h"
#include "search/key_changes.h"
#include "search/plan_judge.h"
#include "search/plan_simulate.h"

namespace braid {
namespace {

struct Priced {
  ImportedPlan imported;
  planner::Verdict verdict;                     // of the evaluator or of the simulator
  std::vector<std::vector<double>> peak_bytes;  // of the simulator: [call][device]
};

// By the evaluator, for the search over keys. What configurations of equal problems have in common,
// such as drawn lengths and rounds of generation, is kept from one to the next.
class KeyPricer {
 public:
  KeyPricer(const Framework& framework, const ImportOptions& options)
      : framework_(framework), options_(options) {}

  Result<Priced> price(const ForeignKeys& keys) {
    Priced out;
    BRAID_ASSIGN(out.imported, framework_.import_keys(keys, options_));
    BRAID_ASSIGN(const Kept* kept, kept_for(out.imported.problem));
    BRAID_ASSIGN(out.verdict,
                 planner::evaluator_judge(kept->problem, *kept->pricer)(out.imported.plan));
    return out;
  }

 private:
  struct Kept {
    PlanningProblem problem;  // that the pricer points to
    std::optional<planner::CallPricer> pricer;
  };

  // Few: keys change strategies more often than problems.
  Result<const Kept*> kept_for(const PlanningProblem& problem) {
    for (const auto& kept : kept_)
      if (kept->problem == problem) return kept.get();
    auto kept = std::make_unique<Kept>(Kept{problem, std::nullopt});
    BRAID_ASSIGN(kept->pricer, planner::CallPricer::make(kept->problem, committed_calibration()));
    kept_.push_back(std::move(kept));
    return kept_.back().get();
  }

  const Framework& framework_;
  const ImportOptions& options_;
  std::vector<std::unique_ptr<Kept>> kept_;
};

// By the simulator, for what is reported.
Result<Priced> simulate(const Framework& framework, const ForeignKeys& keys,
                        const ImportOptions& options) {
  Priced out;
  BRAID_ASSIGN(out.imported, framework.import_keys(keys, options));
  BRAID_ASSIGN(planner::DetailedVerdict detailed,
               planner::simulate_plan_in_detail(out.imported.plan, out.imported.problem,
                                                committed_calibration()));
  out.verdict = std::move(detailed.verdict);
  out.peak_bytes = std::move(detailed.peak_bytes);
  return out;
}

// Of the changes that the evaluator finds best, those that the simulator finds better than all with
// fewer keys.
Result<std::vector<planner::KeyChange>> confirmed(const Framework& framework,
                                                  const ForeignKeys& keys,
                                                  const ImportOptions& options,
                                                  const planner::Verdict& now,
                                                  const planner::BestChanges& changes) {
  std::vector<planner::KeyChange> out;
  for (planner::KeyChange change : changes.by_count) {
    ForeignKeys changed = keys;
    for (const auto& [key, value] : change.changed) changed[key] = value;
    BRAID_ASSIGN(const ImportedPlan imported, framework.import_keys(changed, options));
    BRAID_ASSIGN(change.verdict, planner::simulate_plan(imported.plan, imported.problem,
                                                        committed_calibration(), {}));
    if (planner::better(change.verdict, out.empty() ? now : out.back().verdict))
      out.push_back(std::move(change));
  }
  return out;
}

Result<std::optional<LengthDistribution>> stated_lengths(const std::string& text, const char* key) {
  if (text.empty()) return std::optional<LengthDistribution>();
  BRAID_ASSIGN(const YamlNode root, parse_yaml(cat("value: ", text), cat("--", key)));
  BRAID_ASSIGN(const LengthDistribution lengths,
               read_lengths(*root.find("value"), key, 0, file_reader()));
  return std::optional(lengths);
}

Result<ForeignKeys> read_keys(const Framework& framework, const ImportArguments& arguments) {
  if (arguments.inputs.empty())
    return invalid_input(cat("--import ", framework.name, ": name the configuration to read"));
  BRAID_ASSIGN(const std::string text, read_file(arguments.inputs.front()));
  BRAID_ASSIGN(ForeignKeys keys, framework.parse(text, arguments.inputs.front()));
  const std::vector<std::string> rest(arguments.inputs.begin() + 1, arguments.inputs.end());
  BRAID_TRY(add_overrides(rest, &keys));
  BRAID_TRY(check_override_names(framework, rest).at("command line"));
  return keys;
}

// "71.2 GiB of 76.0 GiB, fits with 6 % to spare".
std::string memory_text(const planner::Verdict& v) {
  const double margin = 1 - v.peak_bytes / v.capacity_bytes;
  return cat(
      format_bytes(v.peak_bytes), " of ", format_bytes(v.capacity_bytes),
      v.fits ? cat(", fits with ", std::lround(100 * margin), " % to spare") : ", does not fit");
}

// What a change gains; times are compared only with a configuration that can run.
std::string gain_text(const planner::Verdict& now, const planner::Verdict& then) {
  if (!now.fits) return "";
  return cat(" (", format_double(std::round(100 * now.step_s / then.step_s) / 100), " x)");
}

// "71.2 GiB on device 3".
std::string fullest_text(const std::vector<double>& peaks) {
  const auto most = std::max_element(peaks.begin(), peaks.end());
  return cat(format_bytes(*most), " on device ", most - peaks.begin());
}

void print_priced(const Priced& priced) {
  const ImportedPlan& imported = priced.imported;
  const planner::Verdict& v = priced.verdict;
  for (size_t c = 0; c < imported.plan.calls.size(); ++c) {
    const CallPlan& call = imported.plan.calls[c];
    std::cout << call.call << ": " << format_seconds(v.call_s[c]) << "  peak "
              << fullest_text(priced.peak_bytes[c]) << "  devices " << mesh_text(call.mesh) << "  "
              << strategy_text(call.strategy) << "\n";
  }
  std::cout << "step " << format_seconds(v.step_s) << "\npeak memory " << memory_text(v) << "\n";
  if (!v.fits) std::cout << v.reason << "\n";
  for (const std::string& note : imported.notes) std::cout << "note: " << note << "\n";
}

std::string value_now(const ForeignKeys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "(unset)" : found->second;
}

void print_change(const ForeignKeys& keys, const planner::KeyChange& change,
                  const planner::Verdict& now) {
  const std::string keys_text =
      cat(change.changed.size(), change.changed.size() == 1 ? " key" : " keys");
  std::cout << (change.verdict.fits ? "best change of " : "no change fits; least memory by ")
            << keys_text << ": step " << format_seconds(change.verdict.step_s)
            << gain_text(now, change.verdict) << ", peak memory " << memory_text(change.verdict)
            << "\n";
  for (const auto& [key, value] : change.changed)
    std::cout << "  " << key << ": " << value_now(keys, key) << " -> " << value << "\n";
}

Json verdict_json(const planner::Verdict& v) {
  return {{"step_s", v.step_s},
          {"peak_gib", v.peak_bytes / kGib},
          {"limit_gib", v.capacity_bytes / kGib},
          {"fits", v.fits},
          {"reason", v.reason}};
}

Json result_json(const Priced& now, const std::vector<planner::KeyChange>& changes) {
  Json json = verdict_json(now.verdict);
  for (size_t c = 0; c < now.imported.plan.calls.size(); ++c) {
    const std::string& name = now.imported.plan.calls[c].call;
    json["calls"][name] = now.verdict.call_s[c];
    for (const double bytes : now.peak_bytes[c])
      json["peak_gib_by_device"][name].push_back(bytes / kGib);
  }
  json["notes"] = now.imported.notes;
  json["plan"] = plan_json(now.imported.plan);
  json["changes"] = Json::array();
  for (const planner::KeyChange& change : changes) {
    Json entry = verdict_json(change.verdict);
    entry["keys"] = change.changed;
    json["changes"].push_back(entry);
  }
  return json;
}

void print_changes(const ForeignKeys& keys, const planner::Verdict& now,
                   const std::vector<planner::KeyChange>& changes, int64_t priced) {
  const bool gains = !changes.empty() &&
                     (!now.fits || !nothing_to_gain(now.step_s, changes.back().verdict.step_s));
  if (gains) {
    for (const planner::KeyChange& change : changes) print_change(keys, change, now);
  } else if (now.fits) {
    std::cout << "nothing to gain: within 3 % of the best of " << priced << " configurations\n";
  } else {
    std::cout << "none of " << priced << " changes of its keys fits or needs less memory\n";
  }
}

}  // namespace

Status run_plan_import(const ImportArguments& arguments) {
  BRAID_ASSIGN(const Framework* framework, find_framework(arguments.framework));
  BRAID_ASSIGN(const ForeignKeys keys, read_keys(*framework, arguments));
  ImportOptions options;
  options.gpu = arguments.gpu;
  options.read = file_reader();
  BRAID_ASSIGN(options.prompt, stated_lengths(arguments.prompt_length, "prompt-length"));
  BRAID_ASSIGN(options.response, stated_lengths(arguments.response_length, "response-length"));
  BRAID_ASSIGN(const Priced now, simulate(*framework, keys, options));
  KeyPricer pricer(*framework, options);
  BRAID_ASSIGN(const Priced estimated, pricer.price(keys));
  const auto price_keys = [&](const ForeignKeys& changed) -> Result<planner::Verdict> {
    BRAID_ASSIGN(const Priced priced, pricer.price(changed));
    if (priced.imported.plan.devices != now.imported.plan.devices)
      return invalid_input("another number of devices");
    return priced.verdict;
  };
  const planner::BestChanges found =
      planner::best_changes(keys, estimated.verdict, framework->tunable(keys), price_keys);
  BRAID_ASSIGN(const std::vector<planner::KeyChange> changes,
               confirmed(*framework, keys, options, now.verdict, found));
  if (arguments.json) {
    std::cout << result_json(now, changes).dump(1) << "\n";
    return ok_status();
  }
  print_priced(now);
  print_changes(keys, now.verdict, changes, found.priced);
  return ok_status();
}

Result<Export> export_config(const std::string& framework, const PlanningProblem& problem,
                             const ExecutionPlan& plan) {
  BRAID_ASSIGN(const Framework* found, find_framework(framework));
  const ExportedConfig exported = found->export_plan(problem, plan);
  return Export{config_text(*found, exported), exported.not_expressed};
}

}  // namespace braid

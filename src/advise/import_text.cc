#include "advise/import_text.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "advise/gain.h"
#include "advise/report.h"
#include "advise/table.h"
#include "base/text.h"
#include "base/units.h"
#include "plan/plan_text.h"

namespace braid::inline advise {
namespace {

// "71.2 GiB of 76.0 GiB, fits with 6 % to spare".
std::string peak_text(const Verdict& v) {
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

// "71.2 GiB on device 3", of the devices of a call.
std::string fullest_text(const std::vector<double>& peaks, const DeviceMesh& mesh) {
  const DeviceId most =
      *std::max_element(mesh.devices.begin(), mesh.devices.end(),
                        [&](DeviceId a, DeviceId b) { return peaks[a.value] < peaks[b.value]; });
  return cat(format_bytes(peaks[most.value]), " on device ", most);
}

// What became of the keys; those that a person has to know of by name.
std::string keys_text(const KeyReport& keys) {
  std::string out =
      cat("keys: ", keys.read.size(), " read, ", keys.without_effect.size(), " without effect, ",
          keys.not_priced.size(), " not priced, ", keys.unknown.size(), " unknown\n");
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const KeyReport::Entry& entry : keys.not_priced) by_reason[entry.why].push_back(entry.key);
  for (const auto& [why, names] : by_reason)
    out += cat("not priced: ", join(names, ", "), " (", why, ")\n");
  for (const std::string& key : keys.unknown) out += cat("unknown key: ", key, "\n");
  return out;
}

std::string value_now(const ForeignKeys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? "(unset)" : found->second;
}

std::string change_text(const Framework& framework, const ForeignKeys& keys,
                        const KeyChange& change, const Verdict& now) {
  std::string out =
      cat(change.verdict.fits ? "best change of " : "no change fits; least memory by ",
          change.changed.size(), change.changed.size() == 1 ? " key" : " keys", ": step ",
          step_text(change.verdict.step_s), gain_text(now, change.verdict), ", peak memory ",
          peak_text(change.verdict), "\n");
  for (const auto& [key, value] : change.changed)
    out += cat("  ", key, ": ", value_now(keys, key), " -> ", value, "\n");
  for (const std::string& line : framework.beside(change.changed)) out += cat("  ", line, "\n");
  return out;
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

Json report_json(const KeyReport& keys) {
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

}  // namespace

std::string priced_text(const PricedImport& priced) {
  const ImportedPlan& imported = priced.imported;
  const Verdict& v = priced.detailed.verdict;
  std::string out = cat("defaults of ", imported.version, "\n",
                        plan_table(imported.problem, imported.plan, priced.detailed));
  for (size_t c = 0; c < imported.plan.calls.size(); ++c)
    out += cat(c == 0 ? "peaks " : ", ", imported.plan.calls[c].call, " ",
               fullest_text(priced.detailed.peak_bytes[c], imported.plan.calls[c].mesh));
  out += cat("\nstep ", step_text(v.step_s),
             " (calls overlap: they do not add up to it)\npeak memory ", peak_text(v), "\n");
  if (!v.fits) out += cat(v.reason, "\n");
  for (const std::string& note : imported.notes) out += cat("note: ", note, "\n");
  return out + keys_text(imported.keys);
}

std::string changes_text(const Framework& framework, const ForeignKeys& keys, const Verdict& now,
                         const std::vector<KeyChange>& changes, int64_t priced) {
  const bool gains = !changes.empty() &&
                     (!now.fits || !nothing_to_gain(now.step_s, changes.back().verdict.step_s));
  std::string out;
  for (const KeyChange& change : changes)
    if (gains) out += change_text(framework, keys, change, now);
  if (gains) return out;
  return now.fits ? cat("nothing to gain: within 3 % of the best of ", priced, " configurations\n")
                  : cat("none of ", priced, " changes of its keys fits or needs less memory\n");
}

Json import_json(const Framework& framework, const PricedImport& now, const std::string& script_way,
                 const std::vector<KeyChange>& changes) {
  Json json = verdict_json(now.detailed.verdict);
  if (!script_way.empty()) json["script"] = script_way;
  json["version"] = now.imported.version;
  json["keys"] = report_json(now.imported.keys);
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

}  // namespace braid::inline advise

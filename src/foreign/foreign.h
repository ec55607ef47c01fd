// Configurations of other RLHF frameworks as planning problems and plans, and back. For people who
// stay with their framework: price what they run, and say a better plan in their own keys. Pure;
// thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/names.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline foreign {

// Flat keys of a configuration ("actor_rollout_ref.rollout.n") with their values as text.
using ForeignKeys = std::map<std::string, std::string>;

// What those configurations do not say.
struct ImportOptions {
  std::string gpu;        // catalogue key; required
  int gpus_per_node = 8;  // where groups of devices share nodes (OpenRLHF)
  // Lengths in tokens; absent = every prompt and response is as long as allowed.
  std::optional<LengthDistribution> prompt, response;
  ReadText read;  // for model paths that are folders with a config.json
  // Sizes of models by the keys that name them: a catalogue name or the path of a config.json.
  std::map<std::string, std::string> model_sizes = {};
  std::string version = "";  // of the framework, such as "0.7"; "" = as the keys tell
};

// What became of every key that is set; each is in exactly one list.
struct KeyReport {
  struct Entry {
    std::string key, why;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<std::string> read;      // the problem or the plan says what it says
  std::vector<Entry> without_effect;  // on time and memory of a step
  std::vector<Entry> not_priced;      // it may change both
  std::vector<std::string> unknown;   // no version of the framework that we know has it
};

struct ImportedPlan {
  PlanningProblem problem;
  ExecutionPlan plan;              // legal for the problem
  std::vector<std::string> notes;  // what was ignored or approximated, one line each
  KeyReport keys = {};
  std::string version = "";  // of the framework whose defaults were taken, and how it was told
};

struct ExportedConfig {
  std::vector<std::pair<std::string, std::string>> keys;  // in the framework's order
  std::vector<std::string> not_expressed;                 // what the framework cannot say
};

// One row of the table that both directions share.
struct ForeignKeyInfo {
  std::string key;   // theirs
  std::string ours;  // field of the plan or the configuration
};

// Keys that change speed or memory and not results, with new values: one key, or several that are
// legal only together.
using KeyMove = ForeignKeys;

struct Framework {
  const char* name;
  // Flat keys of a file: YAML, a shell script that starts the trainer, or bare arguments.
  Result<ForeignKeys> (*parse)(std::string_view text, const std::string& where);
  // Errors: a value that does not fit its key, a model without a known size, sizes that are
  // illegal.
  Result<ImportedPlan> (*import_keys)(const ForeignKeys& keys, const ImportOptions& options);
  // The nearest configuration.
  ExportedConfig (*export_plan)(const PlanningProblem& problem, const ExecutionPlan& plan);
  std::vector<ForeignKeyInfo> (*table)();
  std::vector<KeyMove> (*tunable)(const ForeignKeys& keys);
  // Flat keys of the words that a launch has after its program; empty where it is no launch of RL
  // training.
  ForeignKeys (*launch_keys)(const std::vector<std::string>& words);
  // Where the configuration file that a launch names may lie, from where it runs, best first; empty
  // where it names none or one that is known.
  std::vector<std::string> (*config_files)(const ForeignKeys& keys);
  // Where the source of the program that a launch starts may lie, from where it runs, if that
  // program names the configuration file; empty where the launch does.
  std::vector<std::string> (*program_files)(const ForeignKeys& keys);
  // What of a launch such a source says: the name of its configuration file. Empty for nothing.
  ForeignKeys (*program_keys)(const std::string& source);
  // What some versions want beside these keys, one line each.
  std::vector<std::string> (*beside)(const ForeignKeys& keys);
  const char* flag_prefix;  // "" for key=value, "--" for --key value
};

const std::vector<Framework>& frameworks();
// Errors: an unknown name, with the known ones.
// `others`: names that the caller takes besides, for the error.
Result<const Framework*> find_framework(const std::string& name,
                                        std::vector<std::string> others = {});

// Adds "key=value" arguments to keys, later ones win. Errors: an argument without '='.
Status add_overrides(const std::vector<std::string>& overrides, ForeignKeys* keys);

// Refuses overrides whose key is unknown: they would change nothing.
Status check_override_names(const KeyReport& report, const std::vector<std::string>& overrides,
                            const Framework& framework);

// The keys of a configuration file, and those of a launch that names it, which win.
Result<ForeignKeys> with_config_file(const Framework& framework, const std::string& text,
                                     const std::string& where, const ForeignKeys& launch);

// "key: a -> b" for every key that differs, "(unset)" where one has none.
std::vector<std::string> diff_keys(const ExportedConfig& a, const ExportedConfig& b);

// The configuration as the framework's command line takes it, one key a line.
std::string config_text(const Framework& framework, const ExportedConfig& config);

// The nearest configuration of a framework as text, and what it cannot express.
struct ExportedText {
  std::string text;
  std::vector<std::string> not_expressed;
  std::vector<std::string> beside;  // what some versions of the framework want too
};
// Errors: an unknown framework.
Result<ExportedText> exported_text(const std::string& framework, const PlanningProblem& problem,
                                   const ExecutionPlan& plan);

}  // namespace braid::inline foreign

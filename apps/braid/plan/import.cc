// braid plan --import FRAMEWORK FILE [key=value...]: what a configuration of another framework
// costs, and how to change it.
#include "braid/plan/import.h"

#include <iostream>
#include <optional>

#include "advise/foreign_changes.h"
#include "advise/import_text.h"
#include "base/text.h"
#include "braid/config_inputs.h"
#include "braid/plan/calibration_input.h"
#include "braid/plan/foreign_input.h"
#include "foreign/foreign.h"
#include "foreign/keys/keys.h"
#include "host/file.h"
#include "plan/make_problem.h"

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
    std::cout << import_json(*framework, now, configuration.script_way, found.changes).dump(1)
              << "\n";
    return ok_status();
  }
  std::cout << priced_text(now);
  if (!arguments.no_changes)
    std::cout << changes_text(*framework, keys, now.detailed.verdict, found.changes, found.priced);
  return ok_status();
}

}  // namespace braid

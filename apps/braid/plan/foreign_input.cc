#include "braid/plan/foreign_input.h"

#include <algorithm>

#include "base/text.h"
#include "foreign/scripts/launch_script.h"
#include "host/file.h"

namespace braid {

Result<ForeignInput> read_foreign_input(const Framework& framework,
                                        const ForeignInputOptions& options) {
  ForeignInput out;
  const std::string& path = options.inputs.front();
  BRAID_ASSIGN(const std::string text, read_file(path));
  if (path.ends_with(".py"))
    return invalid_input(cat(path, ": Python programs are not read; name the launch script that ",
                             "starts it (.sh), its configuration (YAML) or a file of its ",
                             "arguments"));
  const bool script = is_launch_script(path, text);
  if (!script && !options.read_script.empty())
    return invalid_input(cat(path, ": is no shell script (a name that ends with .sh, or a first ",
                             "line such as #!/bin/bash); leave out --read-script"));
  LaunchScriptOptions launch_options{options.read_script, {}, options.gpus_per_node};
  for (size_t i = 1; i < options.inputs.size(); ++i)
    if (script && is_script_variable(options.inputs[i]))
      launch_options.variables.push_back(options.inputs[i]);
    else
      out.overrides.push_back(options.inputs[i]);
  if (script) {
    std::vector<std::string>& variables = launch_options.variables;
    const bool says_home =
        std::any_of(variables.begin(), variables.end(),
                    [](const std::string& variable) { return variable.rfind("HOME=", 0) == 0; });
    if (!options.home.empty() && !says_home) variables.push_back(cat("HOME=", options.home));
    BRAID_ASSIGN(LaunchScript launch, read_launch_script(framework, path, text, launch_options));
    out.keys = std::move(launch.keys);
    out.stated = std::move(launch.stated);
    out.notes = std::move(launch.notes);
    out.script_way = launch.way;
  } else {
    BRAID_ASSIGN(out.keys, framework.parse(text, path));
    out.stated = out.keys;
  }
  BRAID_TRY(add_overrides(out.overrides, &out.keys));
  return out;
}

}  // namespace braid

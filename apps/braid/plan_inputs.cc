#include "plan_inputs.h"

#include <cstdlib>

#include "host/file.h"

namespace braid {

Result<LoadedConfig> load_planning_config(const std::vector<std::string>& inputs) {
  ConfigSources sources;
  sources.environment = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  for (const std::string& input : inputs) {
    if (!path_exists(input) && input.find('=') != std::string::npos) {
      sources.overrides.push_back(input);
      continue;
    }
    BRAID_ASSIGN(std::string text, read_file(input));
    sources.files.emplace_back(input, std::move(text));
  }
  return load_config(sources);
}

ReadText file_reader() {
  return [](const std::string& path) { return read_file(path); };
}

}  // namespace braid

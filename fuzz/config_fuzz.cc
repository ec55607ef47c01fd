// Configurations: any text gives a value or an error, and what loads prints as YAML.
#include "config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braid::ConfigSources sources;
  sources.files.emplace_back("fuzz.yaml", std::string(reinterpret_cast<const char*>(data), size));
  const auto loaded = braid::load_config(sources);
  if (loaded.ok()) (void)braid::yaml_text(loaded->resolved);
  return 0;
}

// Recorded launches of other frameworks: words, one a line, then a configuration file or a
// program's source behind an empty line. Every key of what is imported is accounted for once.
#include "base/text.h"
#include "foreign/foreign.h"
#include "plan/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(text.find("\n\n"), text.size());
  const std::vector<std::string> words = braid::split(text.substr(0, end), '\n');
  braid::ImportOptions options;
  options.gpu = "h200";
  for (const braid::Framework& framework : braid::frameworks()) {
    braid::ForeignKeys keys = framework.launch_keys(words);
    if (keys.empty()) continue;
    keys.merge(framework.program_keys(text));
    framework.config_files(keys);
    if (end < text.size()) {
      const auto composed = with_config_file(framework, text.substr(end), "fuzz", keys);
      if (composed.ok()) keys = *composed;
    }
    const auto imported = framework.import_keys(keys, options);
    if (!imported.ok()) continue;
    const braid::KeyReport& report = imported->keys;
    BRAID_CHECK(report.read.size() + report.without_effect.size() + report.not_priced.size() +
                        report.unknown.size() <=
                    keys.size(),
                "a key is counted twice");
    BRAID_CHECK(braid::validate(imported->plan, imported->problem).ok(), "an illegal plan");
  }
  return 0;
}

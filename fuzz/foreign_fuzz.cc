// Configurations of other frameworks: what is imported is a legal plan that can be exported.
#include "foreign/foreign.h"
#include "plan/validate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  braid::ImportOptions options;
  options.gpu = "a100-80g";
  for (const braid::Framework& framework : braid::frameworks()) {
    const auto keys = framework.parse(text, "fuzz");
    if (!keys.ok()) continue;
    const auto imported = framework.import_keys(*keys, options);
    if (!imported.ok()) continue;
    BRAID_CHECK(braid::validate(imported->plan, imported->problem).ok(), "an illegal plan");
    const auto exported = framework.export_plan(imported->problem, imported->plan);
    BRAID_CHECK(!braid::config_text(framework, exported).empty(), "an empty configuration");
  }
  return 0;
}

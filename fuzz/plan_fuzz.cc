// Execution plans: what parses prints to a text that parses to the same plan.
#include "plan/plan_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = braid::parse_plan(text, "fuzz.yaml");
  if (plan.ok()) {
    const auto again = braid::parse_plan(braid::plan_to_yaml(*plan), "printed.yaml");
    BRAID_CHECK(again.ok(), again.status().message());
    BRAID_CHECK(*again == *plan, "the printed plan differs");
  }
  const auto json = braid::parse_json(text, "fuzz.json");
  if (json.ok()) (void)braid::plan_from_json(*json);
  return 0;
}

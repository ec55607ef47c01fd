// Model sizes from config.json: what parses keeps its invariants.
#include "models/size.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model =
      braid::parse_model_size({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!model.ok()) return 0;
  BRAID_CHECK(braid::validate_model_size(*model).ok(), "a model that its own check refuses");
  BRAID_CHECK(braid::total_params(*model) > 0, "a model without parameters");
  return 0;
}

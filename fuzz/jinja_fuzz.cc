// A chat template and the variables that it is rendered with: the first line is the variables as
// JSON, the rest the template.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace jinja = braid::jinja;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(input.find('\n'), size);
  const std::string_view source = input.substr(std::min(border + 1, size));
  const auto parsed = jinja::Template::parse("fuzz", source);
  if (!parsed.ok()) return 0;
  const auto variables = braid::parse_ordered_json(input.substr(0, border), "variables");
  if (!variables.ok() || !variables->is_object()) return 0;
  const auto values = jinja::from_json(*variables);
  if (!values.ok()) return 0;
  jinja::RenderOptions options;
  options.limits.steps = 20'000;
  options.limits.text_bytes = 1 << 16;
  options.limits.depth = 200;
  options.limits.value_depth = 50;
  (void)parsed->render(values->dict(), options);
  return 0;
}

#include "braid/train/about.h"

#include "base/text.h"
#include "config/reference.h"
#include "config/set_keys.h"
#include "plan/plan_text.h"
#include "plan/plan_words.h"
#include "weights/roles.h"

namespace braid {
namespace {

// On one line.
std::string value_text(const YamlNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return node.scalar.empty() ? "\"\"" : node.scalar;
    case YamlNode::Kind::kList:
      for (const YamlNode& item : node.list) parts.push_back(value_text(item));
      return cat("[", join(parts, ", "), "]");
    case YamlNode::Kind::kMap:
      for (const auto& [name, child] : node.map)
        parts.push_back(cat(name, ": ", value_text(child)));
      return cat("{", join(parts, ", "), "}");
  }
  return "";
}

Json set_keys(const YamlNode& resolved) {
  Json out = Json::array();
  visit_set_keys(resolved, [&out](const std::string& key, const YamlNode& value) {
    const KeyFacts* facts = facts_of(key);
    if (facts != nullptr && facts->secret) return;
    out.push_back({key, value_text(value), value.origin});
  });
  return out;
}

}  // namespace

Json about_run(const LoadedConfig& loaded, const PlannedRun& planned) {
  Json out = {{"ranks", planned.program.ranks.size()}, {"set", set_keys(loaded.resolved)}};
  if (const auto arithmetic = batch_arithmetic(loaded.config); arithmetic.ok())
    out["arithmetic"] = arithmetic_text(planned.config, *arithmetic);
  if (generates(planned.program.graph)) out["algorithm"] = algorithm_text(planned.config.algorithm);
  if (!planned.plan) return out;
  out["plan"] = plan_words(*planned.plan);
  out["plan_yaml"] = plan_to_yaml(*planned.plan, &planned.problem->cluster);
  return out;
}

}  // namespace braid

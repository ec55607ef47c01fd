#include "reward/label_check.h"

#include "reward/outcome.h"
#include "reward/rules.h"

namespace braid::inline reward {
namespace {

bool needs_label(const RewardConfig& options) {
  if (options.type != "rule" || options.on_error == "drop" || options.on_error == "zero")
    return false;
  return options.rule == "numeric" || options.rule == "exact" || options.rule == "lcs" ||
         (options.rule == "contains" && options.pattern.empty());
}

}  // namespace

Status check_label(const RewardConfig& options, const Json& extra) {
  if (!needs_label(options)) return ok_status();
  const std::string place = cat("reward '", reward_name(options), "'");
  RewardSample sample;
  const auto found = extra.find("label");
  if (found == extra.end() || found->is_null())
    return invalid_input(cat(place,
                             " compares with a label, and this line has none; "
                             "data.label_key names its field"));
  sample.extra["label"] = *found;
  BRAID_ASSIGN(const std::string label, label_text(sample).at(place));
  if (options.rule == "numeric" && !numeric_answer(label))
    return invalid_input(cat(place, ": 'label' holds no number: \"", label, "\""));
  if (options.rule == "contains" && label.empty())
    return invalid_input(cat(place, ": 'label' is empty, so every response contains it"));
  return ok_status();
}

}  // namespace braid::inline reward

// The fields of a strategy as data, so that YAML, JSON, differences and constraints share one list.
// Internal to plan/. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/yaml.h"
#include "plan/execution_plan.h"

namespace braid::inline plan::plan_fields {

struct StrategyField {
  enum class Kind { kNumber, kFlag, kWord, kPrecision };
  const char* name;  // key in YAML and JSON
  Kind kind;
  int64_t (*get)(const Strategy&);
  Status (*set)(Strategy&, int64_t);    // an error when the number does not fit the field
  bool always_shown = false;            // even when neutral
  std::vector<const char*> words = {};  // of a word: the names of its values, from 0 on
};
const std::vector<StrategyField>& strategy_fields();

// The number of the precision that `text` names, as the field keeps it. Errors: another word.
Result<int64_t> parse_precision_field(const std::string& text);
// The number of a word of the field. Errors name the words that there are.
Result<int64_t> parse_word(const StrategyField& field, const std::string& text);
// "none, selective or full".
std::string words_text(const StrategyField& field);
// "true", "full", "fp8" or the number.
std::string value_text(const StrategyField& field, const Strategy& strategy);
const char* timing_name(OffloadTiming timing);

// The one field that is a list: "5,6,6,5", and "" for even runs. Errors: what is no such list.
inline constexpr const char* kStageLayers = "stage_layers";
std::string stage_layers_text(const Strategy& strategy);
Result<std::vector<int64_t>> parse_stage_layers(const std::string& text);

// A text, or the items of a list as one text with commas ("1,2" of [1, 2]); nothing for a map, an
// empty value or list, and a list of other things than texts.
std::optional<std::string> items_text(const YamlNode& node);

inline constexpr int kMaxDevices = 1 << 20;

}  // namespace braid::inline plan::plan_fields

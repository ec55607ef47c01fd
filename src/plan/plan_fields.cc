#include "plan/plan_fields.h"

#include <limits>

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace plan_fields {
namespace {

using Kind = StrategyField::Kind;

constexpr const char* kRolePrecision = "model";

template <auto Member>
int64_t get(const Strategy& strategy) {
  return static_cast<int64_t>(strategy.*Member);
}

template <auto Member>
Status set(Strategy& strategy, int64_t value) {
  using FieldType = std::remove_reference_t<decltype(strategy.*Member)>;
  if constexpr (std::is_same_v<FieldType, int>)
    if (value > std::numeric_limits<int>::max() || value < std::numeric_limits<int>::min())
      return invalid_input(cat(value, " is too large"));
  strategy.*Member = static_cast<FieldType>(value);
  return ok_status();
}

// Precisions count from 1; 0 = that of the role.
int64_t get_precision(const Strategy& strategy) {
  return strategy.precision ? 1 + static_cast<int64_t>(*strategy.precision) : 0;
}

Status set_precision(Strategy& strategy, int64_t value) {
  strategy.precision.reset();
  if (value > 0) strategy.precision = static_cast<Precision>(value - 1);
  return ok_status();
}

template <auto Member>
StrategyField field(const char* name, Kind kind = Kind::kNumber, bool always_shown = false) {
  return {name, kind, get<Member>, set<Member>, always_shown};
}

// The values of the member count from 0 in the order of the words.
template <auto Member>
StrategyField word(const char* name, std::vector<const char*> words) {
  return {name, Kind::kWord, get<Member>, set<Member>, false, std::move(words)};
}

}  // namespace

const std::vector<StrategyField>& strategy_fields() {
  static const std::vector<StrategyField> fields = {
      field<&Strategy::dp>("dp", Kind::kNumber, true),
      field<&Strategy::tp>("tp", Kind::kNumber, true),
      field<&Strategy::pp>("pp", Kind::kNumber, true),
      field<&Strategy::cp>("cp"),
      field<&Strategy::ep>("ep"),
      field<&Strategy::expert_tp>("expert_tp"),
      word<&Strategy::schedule>("schedule", {"1f1b", "gpipe"}),
      field<&Strategy::interleave>("interleave"),
      field<&Strategy::sequence_parallel>("sequence_parallel", Kind::kFlag),
      field<&Strategy::zero_stage>("zero"),
      field<&Strategy::zero_ranks>("zero_ranks"),
      word<&Strategy::recompute>("recompute", {"none", "selective", "full"}),
      field<&Strategy::micro_batches>("micro_batches"),
      field<&Strategy::micro_tokens>("micro_tokens"),
      field<&Strategy::in_order>("in_order", Kind::kFlag),
      field<&Strategy::kv_budget_tokens>("kv_budget_tokens"),
      field<&Strategy::max_concurrent>("max_concurrent"),
      {"precision", Kind::kPrecision, get_precision, set_precision}};
  return fields;
}

Result<int64_t> parse_precision_field(const std::string& text) {
  if (text == kRolePrecision) return 0;
  const auto precision = parse_precision(text);
  if (!precision.ok())
    return invalid_input(cat("precision must be ", kRolePrecision,
                             " (the model's own), f32, bf16, ", "fp16 or fp8, not '", text, "'"));
  return 1 + static_cast<int64_t>(*precision);
}

std::string words_text(const StrategyField& field) {
  std::string out;
  for (size_t i = 0; i < field.words.size(); ++i)
    out += cat(i == 0 ? "" : i + 1 == field.words.size() ? " or " : ", ", field.words[i]);
  return out;
}

Result<int64_t> parse_word(const StrategyField& field, const std::string& text) {
  for (size_t i = 0; i < field.words.size(); ++i)
    if (text == field.words[i]) return static_cast<int64_t>(i);
  return invalid_input(cat(field.name, " must be ", words_text(field), ", not '", text, "'"));
}

std::string value_text(const StrategyField& field, const Strategy& strategy) {
  const int64_t value = field.get(strategy);
  if (field.kind == StrategyField::Kind::kPrecision)
    return strategy.precision ? precision_name(*strategy.precision) : kRolePrecision;
  if (field.kind == Kind::kFlag) return value != 0 ? "true" : "false";
  if (field.kind == Kind::kWord) return field.words[value];
  return cat(value);
}

std::string stage_layers_text(const Strategy& strategy) {
  std::vector<std::string> parts;
  for (const int64_t layers : strategy.stage_layers) parts.push_back(cat(layers));
  return join(parts, ",");
}

Result<std::vector<int64_t>> parse_stage_layers(const std::string& text) {
  constexpr int64_t kMostLayers = 1 << 20;
  std::vector<int64_t> out;
  if (text.empty()) return out;
  for (const std::string& part : split(text, ',')) {
    int64_t layers = 0;
    if (!parse_int(trim(part), &layers) || layers < 1 || layers > kMostLayers)
      return invalid_input(cat(
          kStageLayers, " must be layers of each stage such as [5, 6, 6, 5], not '", text, "'"));
    out.push_back(layers);
  }
  return out;
}

std::optional<std::string> items_text(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return node.scalar;
  if (node.kind != YamlNode::Kind::kList || node.list.empty()) return std::nullopt;
  std::vector<std::string> items;
  for (const YamlNode& item : node.list) {
    if (item.kind != YamlNode::Kind::kScalar) return std::nullopt;
    items.push_back(item.scalar);
  }
  return join(items, ",");
}

const char* timing_name(OffloadTiming timing) {
  return timing == OffloadTiming::kAfterLastCall ? "after_last_call" : "after_each_call";
}

}  // namespace plan_fields

const char* recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "?";
}

const char* residency_name(Residency residency) {
  return residency == Residency::kDevice ? "device" : "host";
}

std::string strategy_text(const Strategy& strategy) {
  std::string out = cat("dp", strategy.dp, " tp", strategy.tp, " pp", strategy.pp);
  const Strategy neutral;
  for (const plan_fields::StrategyField& field : plan_fields::strategy_fields()) {
    if (field.always_shown || field.get(strategy) == field.get(neutral)) continue;
    const bool flag = field.kind == plan_fields::StrategyField::Kind::kFlag;
    out +=
        cat(" ", field.name, flag ? "" : "=", flag ? "" : plan_fields::value_text(field, strategy));
  }
  if (!strategy.stage_layers.empty())
    out += cat(" ", plan_fields::kStageLayers, "=", plan_fields::stage_layers_text(strategy));
  return out;
}

}  // namespace braid::inline plan

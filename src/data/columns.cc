#include "data/columns.h"

#include <cmath>
#include <vector>

#include "base/text.h"

namespace braid::inline data {
namespace {

constexpr const char* kGroundTruth = "reward_model.ground_truth";

std::string columns_of(const OrderedJson& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) names.push_back(name);
  return join(names, ", ");
}

bool has_column(const OrderedJson& row, const std::string& column) {
  return find_column(row, column) != nullptr;
}

Status missing_key(const OrderedJson& row, const std::string& what, const std::string& hint = "") {
  return invalid_input(cat("missing key ", what, "; keys here: ", columns_of(row), hint));
}

// A name that the user chose must be a column.
Status check_named(const OrderedJson& row, const std::string& name, const char* fallback,
                   const char* option) {
  if (name == fallback || has_column(row, name)) return ok_status();
  return missing_key(row, cat("'", name, "' (", option, ")"));
}

// Token ids stand for the prompt where both are there; messages for a prompt that no one named.
std::string prompt_column(const OrderedJson& row, const DataConfig& config) {
  if (has_column(row, "ids")) return "ids";
  if (has_column(row, config.prompt_key)) return config.prompt_key;
  for (const char* name : {"messages", "conversations"})
    if (has_column(row, name)) return name;
  return "";
}

Status no_prompt(const OrderedJson& row, const DataConfig& config) {
  const bool pairs = has_column(row, "chosen") && has_column(row, "rejected");
  const char* hint =
      pairs ? " (algorithm rm, dpo or orpo learns from chosen and rejected; an evaluation reads "
              "prompts, whatever the algorithm)"
      : has_column(row, "text") ? " (text is for sft; data.prompt_key: text makes it the prompt)"
                                : "";
  return missing_key(row, cat("'", config.prompt_key, "' (data.prompt_key)"), hint);
}

Result<RowColumns> prompt_columns(const OrderedJson& row, RowColumns out,
                                  const DataConfig& config) {
  if (out.prompt.empty()) return no_prompt(row, config);
  if (is_message_column(out.prompt)) out.format = RowFormat::kMessages;
  if (out.label == kGroundTruth) out.format = RowFormat::kVerl;
  return out;
}

Result<RowColumns> sample_columns(const OrderedJson& row, RowColumns out,
                                  const DataConfig& config) {
  const bool messages = is_message_column(out.prompt);
  const bool whole_messages = messages && ends_with_assistant(row[out.prompt]);
  const bool completes = has_column(row, "completion");
  if (!out.prompt.empty() && (completes || has_column(row, "response"))) {
    const bool judged = !out.label.empty() && out.label != kGroundTruth &&
                        truth_of(*find_column(row, out.label)).has_value();
    out.answer = completes ? "completion" : "response";
    out.format = judged      ? RowFormat::kUnpaired
                 : completes ? RowFormat::kPromptCompletion
                             : RowFormat::kPromptResponse;
  } else if (whole_messages || (messages && out.label.empty())) {
    out.format = RowFormat::kMessages;
  } else if (!out.prompt.empty() && !out.label.empty()) {
    out.format = out.label == kGroundTruth ? RowFormat::kVerl : RowFormat::kPromptResponse;
    out.answer = out.label;
  } else if (out.prompt.empty() && has_column(row, "text")) {
    out.format = RowFormat::kText;
    out.answer = "text";
  } else if (out.prompt.empty()) {
    return missing_key(row, cat("'", config.prompt_key, "' (data.prompt_key)"),
                       " (messages or text would do as well)");
  } else {
    return missing_key(row, cat("'completion', 'response' or '", config.label_key,
                                "' (data.label_key), which is what to learn"));
  }
  return out;
}

Result<RowColumns> pair_columns(const OrderedJson& row, RowColumns out) {
  for (const char* column : {"chosen", "rejected"})
    if (!has_column(row, column)) {
      const bool single = has_column(row, "completion") || has_column(row, "response");
      const char* hint =
          single ? " (these are single answers; this algorithm learns from pairs, sft from single "
                   "ones, and so does rm with algorithm.reward_loss: squared_error, of scores, or "
                   "cross_entropy, of labels)"
                 : "";
      return missing_key(row, cat("'", column, "'"), hint);
    }
  out.answer = "chosen";
  out.rejected = "rejected";
  out.format = out.prompt.empty() ? RowFormat::kImplicitPreference : RowFormat::kPreference;
  return out;
}

// A prompt and the one answer to it.
Result<RowColumns> single_columns(const OrderedJson& row, RowColumns out, const DataConfig& config,
                                  const char* hint) {
  if (out.prompt.empty()) return no_prompt(row, config);
  out.answer =
      has_column(row, "completion") || !has_column(row, "response") ? "completion" : "response";
  if (!has_column(row, out.answer)) return missing_key(row, "'completion' or 'response'", hint);
  return out;
}

// A completion and whether it is a good one; of a pair both are read.
Result<RowColumns> labelled_columns(const OrderedJson& row, RowColumns out,
                                    const DataConfig& config) {
  if (has_column(row, "chosen") && has_column(row, "rejected")) return pair_columns(row, out);
  BRAID_ASSIGN(out,
               single_columns(row, out, config, " ('chosen' and 'rejected' would do as well)"));
  const OrderedJson* label = out.label.empty() ? nullptr : find_column(row, out.label);
  if (label == nullptr || !truth_of(*label))
    return label == nullptr
               ? missing_key(row, "'label'", ", which says whether the completion is a good one")
               : invalid_input(cat("key '", out.label, "' must be true or false, not ",
                                   label->dump(), ": whether the completion is a good one"));
  out.format = RowFormat::kUnpaired;
  return out;
}

// A response and how good it is.
Result<RowColumns> scored_columns(const OrderedJson& row, RowColumns out,
                                  const DataConfig& config) {
  const bool pair = has_column(row, "chosen") && has_column(row, "rejected");
  BRAID_ASSIGN(
      out, single_columns(row, out, config,
                          pair ? " (chosen and rejected are for algorithm.reward_loss: pairwise or "
                                 "cross_entropy)"
                               : ""));
  out.label = config.label_key == DataConfig().label_key ? "score" : config.label_key;
  const OrderedJson* score = find_column(row, out.label);
  if (score == nullptr)
    return missing_key(row, "'score'",
                       ", the number that says how good the response is (data.label_key names "
                       "another column)");
  if (!number_of(*score))
    return invalid_input(cat("key '", out.label, "' must be a finite number, not ", score->dump(),
                             ": how good the response is"));
  out.format = RowFormat::kScored;
  return out;
}

const char* kind_of(const OrderedJson& value) {
  if (is_conversation(value)) return "a conversation";
  if (value.is_array()) return "token ids";
  return value.is_string() ? "text" : value.type_name();
}

}  // namespace

const char* row_format_name(RowFormat format) {
  switch (format) {
    case RowFormat::kPrompt:
      return "prompt";
    case RowFormat::kVerl:
      return "prompt + reward_model (verl)";
    case RowFormat::kMessages:
      return "messages";
    case RowFormat::kPromptResponse:
      return "prompt + response";
    case RowFormat::kPromptCompletion:
      return "prompt + completion (TRL)";
    case RowFormat::kUnpaired:
      return "prompt + completion + label (TRL, unpaired preference)";
    case RowFormat::kPreference:
      return "prompt + chosen + rejected (TRL, preference)";
    case RowFormat::kImplicitPreference:
      return "chosen + rejected (TRL, preference with the prompt inside)";
    case RowFormat::kText:
      return "text (TRL, language modelling)";
    case RowFormat::kShareGpt:
      return "conversations of from and value (ShareGPT)";
    case RowFormat::kAlpaca:
      return "instruction + input + output (Alpaca)";
    case RowFormat::kScored:
      return "prompt + response + score";
  }
  return "";
}

bool is_conversation(const OrderedJson& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

bool is_message_column(const std::string& name) {
  return name == "messages" || name == "conversations";
}

std::optional<bool> truth_of(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = lowered(value.get_ref<const std::string&>());
  if (text == "true") return true;
  return text == "false" ? std::optional<bool>(false) : std::nullopt;
}

std::optional<double> number_of(const OrderedJson& value) {
  std::optional<double> number;
  if (value.is_number()) number = value.get<double>();
  if (double said = 0;
      value.is_string() && parse_double(value.get_ref<const std::string&>(), &said))
    number = said;
  return number && std::isfinite(*number) ? number : std::nullopt;
}

bool ends_with_assistant(const OrderedJson& messages) {
  if (!is_conversation(messages) || !messages.back().is_object()) return false;
  const auto role = messages.back().find("role");
  return role != messages.back().end() && *role == "assistant";
}

const OrderedJson* find_column(const OrderedJson& row, const std::string& path) {
  const auto whole = row.find(path);
  if (whole != row.end()) return whole->is_null() ? nullptr : &*whole;
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto outer = row.find(path.substr(0, dot));
  if (outer == row.end() || !outer->is_object()) return nullptr;
  return find_column(*outer, path.substr(dot + 1));
}

Result<RowColumns> recognise_columns(const OrderedJson& row, DataNeed need,
                                     const DataConfig& config) {
  if (!has_column(row, "ids"))
    BRAID_TRY(check_named(row, config.prompt_key, "prompt", "data.prompt_key"));
  BRAID_TRY(check_named(row, config.label_key, "label", "data.label_key"));
  RowColumns out;
  out.prompt = prompt_column(row, config);
  if (has_column(row, config.label_key)) {
    out.label = config.label_key;
  } else if (has_column(row, kGroundTruth)) {
    out.label = kGroundTruth;
  }
  if (need == DataNeed::kSamples) return sample_columns(row, out, config);
  if (need == DataNeed::kLabelled) return labelled_columns(row, out, config);
  if (need == DataNeed::kScored) return scored_columns(row, out, config);
  return need == DataNeed::kPairs ? pair_columns(row, out) : prompt_columns(row, out, config);
}

std::string describe_columns(const OrderedJson& row, const RowColumns& columns) {
  std::vector<std::string> parts;
  for (const std::string* column : {&columns.prompt, &columns.answer, &columns.rejected})
    if (!column->empty())
      parts.push_back(cat("'", *column, "' is ", kind_of(*find_column(row, *column))));
  if (!columns.label.empty() && columns.label != columns.answer)
    parts.push_back(cat("'", columns.label, "' is the ",
                        columns.format == RowFormat::kScored ? "score" : "label"));
  return cat(row_format_name(columns.format), ": ", join(parts, ", "));
}

}  // namespace braid::inline data

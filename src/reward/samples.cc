#include "reward/samples.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline reward {
namespace {

// Text, or a conversation, of which the last message stands for the text.
Status read_prompt(const Json& fields, RewardSample* sample) {
  const auto prompt = fields.find("prompt");
  if (prompt == fields.end() || !prompt->is_array() || prompt->empty()) {
    BRAID_ASSIGN(sample->prompt, json_field<std::string>(fields, "prompt"));
    return ok_status();
  }
  for (const Json& message : *prompt)
    if (!message.is_object() || !message.contains("role") || !message.contains("content"))
      return invalid_input("key 'prompt': a message of a conversation needs 'role' and 'content'");
  sample->messages = *prompt;
  const Json& last = prompt->back()["content"];
  sample->prompt = last.is_string() ? last.get<std::string>() : last.dump();
  return ok_status();
}

Result<RewardSample> parse_sample(std::string_view line, const std::string& where,
                                  const std::string& label_key) {
  BRAID_ASSIGN(Json fields, parse_json(line, where));
  if (!fields.is_object()) return invalid_input(cat(where, ": must be a JSON object"));
  const auto read = [&](RewardSample& sample) -> Status {
    BRAID_TRY(read_prompt(fields, &sample));
    BRAID_ASSIGN(sample.response, json_field<std::string>(fields, "response"));
    BRAID_ASSIGN(sample.prompt_ids, json_field_or(fields, "prompt_ids", std::vector<int32_t>()));
    BRAID_ASSIGN(sample.response_ids,
                 json_field_or(fields, "response_ids", std::vector<int32_t>()));
    BRAID_ASSIGN(sample.truncated, json_field_or(fields, "truncated", false));
    return ok_status();
  };
  RewardSample sample;
  BRAID_TRY(read(sample).at(where));
  for (const char* key : {"prompt", "response", "prompt_ids", "response_ids", "truncated"})
    fields.erase(key);
  if (label_key != "label") {
    const auto named = fields.find(label_key);
    if (named == fields.end())
      return invalid_input(cat(where, ": missing key '", label_key, "' (data.label_key)"));
    fields["label"] = Json(*named);
  }
  sample.extra = std::move(fields);
  return sample;
}

}  // namespace

Result<std::vector<RewardSample>> parse_samples(std::string_view text, const std::string& file,
                                                const std::string& label_key) {
  std::vector<RewardSample> samples;
  int64_t line_number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++line_number;
    if (trim(line).empty()) continue;
    BRAID_ASSIGN(RewardSample sample, parse_sample(line, cat(file, ":", line_number), label_key));
    sample.sample_id = line_number - 1;
    if (!samples.empty()) {
      const RewardSample& before = samples.back();
      const bool same = before.prompt == sample.prompt && before.messages == sample.messages;
      sample.group = before.group + (same ? 0 : 1);
    }
    samples.push_back(std::move(sample));
  }
  if (samples.empty()) return invalid_input(cat(file, ": holds no samples"));
  return samples;
}

}  // namespace braid::inline reward

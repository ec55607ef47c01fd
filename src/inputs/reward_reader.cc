#include "inputs/reward_reader.h"

#include <algorithm>

#include "base/text.h"
#include "data/chat/render.h"
#include "data/tokenizer/difference.h"
#include "host/adapter_folder.h"
#include "host/file.h"
#include "models/spec.h"

namespace braid::inline inputs {
namespace {

constexpr const char *kAssistant = "assistant", *kRole = "role", *kContent = "content";

// The conversation with the response as the assistant's next message, or as the rest of the one
// that it ends with.
Result<OrderedJson> answered_messages(OrderedJson messages, const std::string& response) {
  const bool open = !messages.empty() && messages.back().value(kRole, "") == kAssistant;
  if (!open) {
    messages.push_back(OrderedJson{{kRole, kAssistant}, {kContent, response}});
    return messages;
  }
  OrderedJson& last = messages.back()[kContent];
  if (!last.is_string())
    return invalid_input("the assistant's message that the response goes on with is no text");
  last = last.get<std::string>() + response;
  return messages;
}

}  // namespace

Result<std::optional<RewardReader>> RewardReader::load(const RewardConfig& reward,
                                                       const std::optional<Tokenizer>& policy,
                                                       const std::string& date) {
  const std::string file = join_path(reward.path, "tokenizer.json");
  if (!policy || !path_exists(file)) return std::optional<RewardReader>();
  const std::string place = cat("reward '", reward_name(reward), "'");
  BRAID_ASSIGN(const Tokenizer own, load_tokenizer(reward.path).at(place));
  std::string difference = other_meaning(*policy, own);
  if (difference.empty()) return std::optional<RewardReader>();
  RewardReader out(place, own, *policy);
  out.date_ = date;
  out.difference_ = std::move(difference);
  BRAID_TRY(out.read_limits(reward.path).at(place));
  return std::optional<RewardReader>(std::move(out));
}

Status RewardReader::read_limits(const std::string& folder) {
  if (is_adapter_folder(folder)) return ok_status();
  const std::string file = join_path(folder, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, file));
  if (own_.vocab_size() > spec.vocab)
    return invalid_input(cat("its tokenizer has ids up to ", own_.vocab_size() - 1,
                             ", the model's vocabulary ends at ", spec.vocab - 1,
                             "; it belongs to another model"));
  if (has_last_position(spec)) positions_ = spec.max_positions;
  return ok_status();
}

Result<std::vector<int32_t>> RewardReader::conversation_ids(const RewardSample& sample,
                                                            bool answered) const {
  OrderedJson line = OrderedJson::object();
  line["messages"] = OrderedJson(sample.messages);
  for (const char* field : {"tools", "documents"})
    if (sample.extra.contains(field)) line[field] = OrderedJson(sample.extra.at(field));
  if (answered) {
    BRAID_ASSIGN(line["messages"], answered_messages(line["messages"], sample.response));
  }
  BRAID_ASSIGN(const Conversation conversation, read_conversation(line, "messages"));
  ChatOptions options;
  options.add_generation_prompt = !answered;
  options.date = date_;
  BRAID_ASSIGN(const ChatIds chat, encode_chat(own_, conversation, options));
  return chat.ids;
}

Result<std::vector<int32_t>> RewardReader::text_ids(const RewardSample& sample,
                                                    bool answered) const {
  std::string text = sample.prompt;
  if (text.empty()) {  // of data that are ids
    BRAID_ASSIGN(text, policy_.decode(sample.prompt_ids, true));
  }
  return own_.encode(answered ? text + sample.response : text, true);
}

Result<RewardSample> RewardReader::read(RewardSample sample) const {
  const std::string place = cat(name_, ": sample ", sample.sample_id);
  const auto ids_of = [&](bool answered) {
    return sample.messages.is_null() ? text_ids(sample, answered)
                                     : conversation_ids(sample, answered);
  };
  BRAID_ASSIGN(const std::vector<int32_t> all, ids_of(true).at(place));
  if (all.empty()) return invalid_input(cat(place, " has no tokens in the model's tokenizer"));
  const auto length = static_cast<int64_t>(all.size());
  if (positions_ > 0 && length > positions_)
    return invalid_input(cat(place, " has ", length,
                             " tokens in the model's tokenizer; the model "
                             "has positions for ",
                             positions_));
  // Rows of prompts that are alike are computed once. A template may refuse an unanswered prompt.
  const Result<std::vector<int32_t>> prompt = ids_of(false);
  auto middle = all.begin() + 1;
  if (prompt.ok())
    middle = std::max(middle,
                      std::mismatch(all.begin(), all.end(), prompt->begin(), prompt->end()).first);
  sample.prompt_ids.assign(all.begin(), middle);
  sample.response_ids.assign(middle, all.end());
  return sample;
}

Result<RewardReaders> load_reward_readers(const Config& config,
                                          const std::optional<Tokenizer>& policy) {
  RewardReaders out;
  for (const RewardConfig& reward : config.reward) {
    std::optional<RewardReader>& reader = out.emplace_back();
    if (reward.type != "model") continue;
    BRAID_ASSIGN(reader, RewardReader::load(reward, policy, config.data.template_date));
  }
  return out;
}

Status check_reward_texts(const RewardReaders& readers, const DataSet& data) {
  for (const std::optional<RewardReader>& reader : readers) {
    if (!reader || data.size() == 0) continue;
    BRAID_ASSIGN(const DataRecord record, data.at(0));
    RewardSample sample;
    sample.prompt = record.prompt;
    sample.response = "ok";
    sample.messages = record.conversation;
    sample.prompt_ids = record.prompt_ids;
    sample.extra = record.extra;
    BRAID_TRY(reader->read(std::move(sample)).status());
  }
  return ok_status();
}

Result<std::vector<RewardSample>> as_read(const std::optional<RewardReader>& reader,
                                          std::vector<RewardSample> samples) {
  if (!reader) return samples;
  for (RewardSample& sample : samples) {
    BRAID_ASSIGN(sample, reader->read(std::move(sample)));
  }
  return samples;
}

}  // namespace braid::inline inputs

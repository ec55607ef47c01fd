#include "inputs/run_data.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "data/chat/render.h"
#include "host/adapter_folder.h"
#include "host/file.h"
#include "models/spec.h"
#include "reward/label_check.h"

namespace braid::inline inputs {
namespace {

// The specification of the policy, or none where the configuration names no model.
Result<std::optional<ModelSpec>> policy_spec(const Config& config) {
  const ModelConfig& model = config.model;
  const std::string file = model.path.empty() ? model.config : join_path(model.path, "config.json");
  // Loading says what an adapter folder lacks.
  const bool adapters = !model.path.empty() && is_adapter_folder(model.path);
  if (file.empty() || adapters) return std::optional<ModelSpec>();
  BRAID_ASSIGN(const std::string text, read_file(file).at("model.path"));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(text, file));
  return std::optional<ModelSpec>(std::move(spec));
}

Status check_ids(const std::vector<int32_t>& ids, const ModelSpec& spec) {
  for (const int32_t id : ids)
    if (id >= spec.vocab)
      return invalid_input(
          cat("token id ", id, " is outside of the model's vocabulary of ", spec.vocab, " tokens"));
  return ok_status();
}

// What generation, or a table of positions, would refuse later.
Status check_positions(const DataRecord& record, const ModelSpec& spec, DataNeed need,
                       int64_t response_limit) {
  const bool generated = need == DataNeed::kPrompts;
  if (spec.max_positions == 0 || (!generated && !has_last_position(spec))) return ok_status();
  const auto prompt = static_cast<int64_t>(record.prompt_ids.size());
  const int64_t response =
      generated
          ? response_limit
          : static_cast<int64_t>(std::max(record.response_ids.size(), record.rejected_ids.size()));
  if (prompt + response <= spec.max_positions) return ok_status();
  return invalid_input(
      cat("a prompt of ", prompt, " and ", generated ? "up to " : "", response,
          " response tokens exceed the model's ", spec.max_positions, " positions; ",
          generated ? "lower rollout.max_response_length, or let data.max_prompt_length with "
                      "data.overlong drop or cut such prompts"
                    : "shorten the line"));
}

Status check_labels(const DataRecord& record, const std::vector<RewardConfig>& rewards) {
  for (const RewardConfig& reward : rewards) BRAID_TRY(check_label(reward, record.extra));
  return ok_status();
}

// Roles of messages that published chat templates know. Most templates write any other one as it
// stands, so a misspelt one would be trained on.
constexpr const char* kUsualRoles[] = {"system", "developer", "user", "assistant", "tool"};

// Counts the conversations in which another role occurs.
void count_odd_roles(const DataRecord& record, std::map<std::string, int64_t>* counts) {
  std::set<std::string> odd;
  for (const OrderedJson& message : record.conversation) {
    const auto role = message.is_object() ? message.find("role") : message.end();
    if (role == message.end() || !role->is_string()) continue;
    const auto& name = role->get_ref<const std::string&>();
    if (std::find(std::begin(kUsualRoles), std::end(kUsualRoles), name) == std::end(kUsualRoles))
      odd.insert(name);
  }
  for (const std::string& name : odd) ++(*counts)[name];
}

void note_odd_roles(const std::string& source, const std::map<std::string, int64_t>& counts) {
  for (const auto& [name, count] : counts)
    log_warning(cat(source, ": ", count, " conversations have the role '", name,
                    "', which few chat templates know (they know system, user, assistant and "
                    "tool); is it misspelt?"));
}

// Says once in a process which day the chat template writes into the data, where it writes one.
void note_date(const Config& config, const Tokenizer* tokenizer, const OrderedJson& chat) {
  if (chat.is_null() || tokenizer == nullptr) return;
  const auto on = [&](const char* date) -> Result<std::string> {
    Conversation conversation;
    conversation.messages = chat;
    BRAID_ASSIGN(ChatOptions options, chat_options(config.data));
    options.date = date;
    BRAID_ASSIGN(const jinja::Rendering out, render_chat(*tokenizer, conversation, options));
    return out.text;
  };
  const auto one = on("2001-02-03"), other = on("2014-12-25");
  if (!one.ok() || !other.ok() || *one == *other) return;
  const std::string& stated = config.data.template_date;
  static std::once_flag said;
  std::call_once(said, [&] {
    log_info(cat("data.template_date: the chat template writes the date; it sees ",
                 stated.empty() ? today() : stated, " as today",
                 stated.empty() ? "" : ", all along the run and where it is continued"));
  });
}

}  // namespace

Result<RecordCheck> record_check(const Config& config, DataNeed need) {
  BRAID_ASSIGN(const std::optional<ModelSpec> spec, policy_spec(config));
  const int64_t response_limit = config.rollout.max_response_length;
  const bool scored = need == DataNeed::kPrompts;
  return RecordCheck([=, rewards = config.reward](const DataRecord& record) -> Status {
    if (scored) BRAID_TRY(check_labels(record, rewards));
    if (!spec) return ok_status();
    for (const auto* ids : {&record.prompt_ids, &record.response_ids, &record.rejected_ids})
      BRAID_TRY(check_ids(*ids, *spec));
    return check_positions(record, *spec, need, response_limit);
  });
}

DataNeed data_need(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind != CallKind::kFetch) continue;
    if (call.function == "samples") return DataNeed::kSamples;
    if (call.function == "pairs") return DataNeed::kPairs;
    if (call.function == "labelled") return DataNeed::kLabelled;
    if (call.function == "scored") return DataNeed::kScored;
  }
  return DataNeed::kPrompts;
}

std::string tokenizer_path(const Config& config) {
  if (!config.tokenizer.path.empty()) return config.tokenizer.path;
  const bool beside_model =
      !config.model.path.empty() && path_exists(join_path(config.model.path, "tokenizer.json"));
  return beside_model ? config.model.path : "";
}

Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need,
                              double check_s) {
  RunData out;
  const std::string path = tokenizer_path(config);
  const std::string file = is_folder(path) ? join_path(path, "tokenizer.json") : path;
  if (!path.empty() && !path_exists(file))
    return not_found(cat("tokenizer.path: ", file, " does not exist"));
  if (!path.empty()) {
    BRAID_ASSIGN(out.tokenizer, load_tokenizer(path));
  }
  const Tokenizer* tokenizer = out.tokenizer ? &*out.tokenizer : nullptr;
  LoadingOptions loading;
  BRAID_ASSIGN(loading.check, record_check(config, need));
  std::map<std::string, int64_t> odd_roles;
  OrderedJson chat;
  loading.visit = [&](const DataRecord& record) {
    if (chat.is_null()) chat = record.conversation;
    count_odd_roles(record, &odd_roles);
  };
  loading.check_s = check_s;
  BRAID_ASSIGN(out.data, load_data_set(source, need, tokenizer, config.data, loading));
  note_odd_roles(source, odd_roles);
  note_date(config, tokenizer, chat);
  return out;
}

}  // namespace braid::inline inputs

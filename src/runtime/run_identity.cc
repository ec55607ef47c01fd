#include "runtime/run_identity.h"

#include <algorithm>

#include "base/text.h"
#include "config/binder.h"

namespace braid {
namespace {

// Options that may differ between a run and its continuation: they change what is written, how fast
// or in how much memory, and how long the run is, but no number of a step.
constexpr const char* kFreeGroups[] = {"run.",  "checkpoint.", "log.",     "eval.",
                                       "plan.", "cluster.",    "workload."};
constexpr const char* kFreeKeys[] = {"train.total_steps",
                                     "train.total_episodes",
                                     "train.threads",
                                     "train.recompute",
                                     "train.on_nonfinite",
                                     "train.max_skipped_steps",
                                     "rollout.record",
                                     "rollout.max_concurrent",
                                     "rollout.kv_budget_tokens",
                                     "rollout.longest_first",
                                     "data.eval",
                                     "train.offload",
                                     "lora.export_as"};
constexpr const char* kFreeRewardKeys[] = {".auth_token",    ".url",       ".timeout_s",
                                           ".workers",       ".memory_mb", ".retries",
                                           ".batch_samples", ".outage_s"};
constexpr const char* kSecretKeys[] = {".auth_token"};

bool is_free(const std::string& key) {
  const auto begins = [&](const char* group) { return key.rfind(group, 0) == 0; };
  const auto ends = [&](const char* name) { return key.ends_with(name); };
  return std::any_of(std::begin(kFreeGroups), std::end(kFreeGroups), begins) ||
         std::any_of(std::begin(kFreeKeys), std::end(kFreeKeys),
                     [&](const char* name) { return key == name; }) ||
         (begins("reward[") &&
          std::any_of(std::begin(kFreeRewardKeys), std::end(kFreeRewardKeys), ends));
}

void flatten(const YamlNode& node, const std::string& key, Json& out) {
  if (node.kind == YamlNode::Kind::kScalar) {
    const bool secret = std::any_of(std::begin(kSecretKeys), std::end(kSecretKeys),
                                    [&](const char* name) { return key.ends_with(name); });
    if (!secret) out[key] = node.scalar;
  }
  for (const auto& [name, child] : node.map)
    flatten(child, key.empty() ? name : cat(key, ".", name), out);
  for (size_t i = 0; i < node.list.size(); ++i) flatten(node.list[i], cat(key, "[", i, "]"), out);
}

// "KEY was A, is B" for a key that differs; an entry of a list may be on one side only.
void note_difference(const std::string& key, const Json& saved, const Json& now,
                     std::vector<std::string>& out) {
  const bool list = key.find('[') != std::string::npos;
  if (is_free(key) || (!list && (!saved.contains(key) || !now.contains(key)))) return;
  const auto text = [&](const Json& from) {
    return from.contains(key) ? "'" + from[key].get<std::string>() + "'" : "absent";
  };
  if (text(saved) != text(now)) out.push_back(cat(key, " was ", text(saved), ", is ", text(now)));
}

}  // namespace

Json flat_options(const Config& config) {
  Config copy = config;
  Json out = Json::object();
  flatten(OptionPrinter::print(copy, nullptr), "", out);
  return out;
}

Status check_same_options(const Json& saved, const Json& now) {
  std::vector<std::string> differences;
  for (const auto& [key, value] : saved.items()) note_difference(key, saved, now, differences);
  for (const auto& [key, value] : now.items())
    if (!saved.contains(key)) note_difference(key, saved, now, differences);
  if (differences.empty()) return ok_status();
  const size_t count = differences.size();
  if (count > 5) differences.resize(5);
  return invalid_input(cat("the checkpoint is of a run with other options: ",
                           join(differences, "; "), count > 5 ? "; ..." : "",
                           " (put them back, or begin a new run from the exported model with "
                           "checkpoint.resume=none)"));
}

Json data_identity(const DataSet& data) {
  return {{"records", data.size()}, {"sha256", data.sha256()}};
}

Status check_same_data(const Json& saved, const Json& now) {
  if (saved == now) return ok_status();
  if (saved.value("records", Json()) != now["records"])
    return invalid_input(cat("data.train: has ", now["records"], " records now, ",
                             saved.value("records", Json()),
                             " when the checkpoint was written; the data position would be lost"));
  return invalid_input(
      "data.train: a line, or the token ids that one becomes, is not what it was when the "
      "checkpoint "
      "was written; put the data (and the tokenizer) back, or begin a new run from the exported "
      "model with checkpoint.resume=none");
}

Json run_identity(const Config& config, const Program& program, const DataSet& data) {
  return {{"program", program_hash(program)},
          {"options", flat_options(config)},
          {"data", data_identity(data)}};
}

Status check_same_run(const Json& saved, const Json& now) {
  BRAID_ASSIGN(const Json options, json_field<Json>(saved, "options"));
  BRAID_TRY(check_same_options(options, now["options"]));
  BRAID_ASSIGN(const auto program, json_field<std::string>(saved, "program"));
  if (program != now["program"])
    return invalid_input(cat("the checkpoint is of another program (", program, ", this run has ",
                             now["program"].get<std::string>(), "; compare with --print-program)"));
  BRAID_ASSIGN(const Json data, json_field<Json>(saved, "data"));
  return check_same_data(data, now["data"]);
}

}  // namespace braid

#include "weights/check_tokenizers.h"

#include <algorithm>

#include "base/text.h"
#include "data/tokenizer/difference.h"
#include "host/adapter_folder.h"
#include "host/file.h"
#include "inputs/reward_reader.h"
#include "inputs/run_data.h"
#include "models/spec.h"
#include "plan/make_problem.h"
#include "reward/reward.h"
#include "weights/roles.h"

namespace braid::inline weights {
namespace {

// A folder of a model beside the policy, and the key that names it.
struct Reader {
  std::string key, folder;
};

bool is_model_reward(const RewardConfig& reward) { return reward.type == "model"; }

// tokenizer.json of a folder or the file itself.
std::string tokenizer_file(const std::string& path) {
  return is_folder(path) ? join_path(path, "tokenizer.json") : path;
}

Result<int64_t> vocabulary(const std::string& file) {
  BRAID_ASSIGN(const std::string text, read_file(file));
  BRAID_ASSIGN(const ModelSpec spec, parse_model_spec(text, file));
  return spec.vocab;
}

// Without tokenizers all that is known is how many ids there are.
Status compare_sizes(const Config& config, const Reader& reader, const std::string& lacks,
                     std::vector<std::string>* notes) {
  notes->push_back(cat(reader.key, ": ", lacks, ", so nobody knows whether ", reader.folder,
                       " means the same by the policy's token ids"));
  const std::string policy =
      config.model.path.empty() ? config.model.config : join_path(config.model.path, "config.json");
  const bool known = !policy.empty() && path_exists(policy) && !is_adapter_folder(reader.folder);
  if (!known) return ok_status();
  BRAID_ASSIGN(const int64_t own, vocabulary(policy));
  BRAID_ASSIGN(const int64_t other, vocabulary(join_path(reader.folder, "config.json")));
  if (own == other) return ok_status();
  if (own > other)
    return invalid_input(cat(reader.key, ": the vocabulary of ", reader.folder, " has ", other,
                             " tokens, the policy's ", own,
                             "; this model cannot read what the policy writes"));
  return invalid_input(cat(reader.key, ": the vocabulary of ", reader.folder, " has ", other,
                           " tokens, the policy's ", own, ", and ", lacks,
                           ", so nobody knows what the policy's ids mean to it; where they mean "
                           "the same, put one tokenizer.json into both folders"));
}

Status compare(const Config& config, const Reader& reader,
               const std::optional<Tokenizer>& tokenizer, std::vector<std::string>* notes) {
  const std::string file = tokenizer_file(reader.folder);
  if (!tokenizer) return compare_sizes(config, reader, "the policy has no tokenizer", notes);
  if (!path_exists(file))
    return compare_sizes(config, reader, "there is no tokenizer.json beside the model", notes);
  const auto own_text = read_file(tokenizer_file(tokenizer_path(config))), text = read_file(file);
  if (own_text.ok() && text.ok() && *own_text == *text) return ok_status();
  BRAID_ASSIGN(const Tokenizer other, load_tokenizer(reader.folder).at(reader.key));
  const std::string meaning = other_meaning(*tokenizer, other);
  if (!meaning.empty())
    return invalid_input(cat(reader.key, ": ", reader.folder, " has another tokenizer than ",
                             tokenizer_path(config), ", whose ids it would be given: ", meaning,
                             "; take a model of the policy's tokenizer (where the ids do mean the "
                             "same, put the policy's tokenizer.json into that folder)"));
  if (const std::string probe = other_cut(*tokenizer, other); !probe.empty())
    notes->push_back(cat(reader.key, ": the tokenizer of ", reader.folder,
                         " has the policy's tokens but cuts texts otherwise, such as ",
                         Json(probe).dump(), "; the model is given the policy's ids"));
  return ok_status();
}

Status compare_rewards(const Config& config, const std::optional<Tokenizer>& tokenizer,
                       std::vector<std::string>* notes) {
  BRAID_ASSIGN(const RewardReaders readers, load_reward_readers(config, tokenizer));
  for (size_t i = 0; i < readers.size(); ++i) {
    const RewardConfig& reward = config.reward[i];
    if (reward.type != "model") continue;
    const std::string place = cat("reward '", reward_name(reward), "'");
    if (readers[i]) {
      notes->push_back(cat(place, ": ", reward.path, " has another tokenizer than ",
                           tokenizer_path(config), " (", readers[i]->difference(),
                           "); it is given texts, in tokens of its own"));
    } else {
      BRAID_TRY(compare(config, {place, reward.path}, tokenizer, notes));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::optional<Tokenizer>> configured_tokenizer(const Config& config) {
  const std::string path = tokenizer_path(config);
  if (path.empty()) return std::optional<Tokenizer>();
  BRAID_ASSIGN(Tokenizer tokenizer, load_tokenizer(path));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

Status check_reward_tokenizers(const Config& config, std::vector<std::string>* notes) {
  if (std::none_of(config.reward.begin(), config.reward.end(), is_model_reward)) return ok_status();
  BRAID_ASSIGN(const std::optional<Tokenizer> tokenizer, configured_tokenizer(config));
  return compare_rewards(config, tokenizer, notes);
}

Status check_shared_tokenizers(const Config& config, const Graph& graph,
                               const std::optional<Tokenizer>& tokenizer,
                               std::vector<std::string>* notes) {
  if (needs_rewards(config, graph)) BRAID_TRY(compare_rewards(config, tokenizer, notes));
  const std::pair<const char*, std::string> roles[] = {{"reference", config.reference.path},
                                                       {"critic", config.critic.path},
                                                       {"teacher", config.teacher.path}};
  for (const auto& [role, folder] : roles)
    if (!folder.empty() && find_role(graph, RoleId{role}) != nullptr)
      BRAID_TRY(compare(config, {cat(role, ".path"), folder}, tokenizer, notes));
  const bool copied = config.critic.path.empty() && config.critic.init_from == "reward_model" &&
                      find_role(graph, RoleId{"critic"}) != nullptr;
  const auto first = std::find_if(config.reward.begin(), config.reward.end(), is_model_reward);
  if (copied && first != config.reward.end())
    BRAID_TRY(compare(config, {"critic.init_from", first->path}, tokenizer, notes));
  return ok_status();
}

}  // namespace braid::inline weights

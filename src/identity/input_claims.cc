#include "identity/input_claims.h"

#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_folder.h"
#include "config/evaluates.h"
#include "data/row_sources.h"
#include "data/tokenizer/tokenizer.h"
#include "host/file.h"
#include "host/file_claim.h"
#include "host/file_fingerprint.h"
#include "host/hub_cache.h"
#include "host/progress.h"
#include "inputs/run_data.h"
#include "nn/safetensors.h"
#include "reward/reward.h"
#include "weights/load_models.h"
#include "weights/roles.h"
#include "weights/shared_reads.h"

namespace braid::inline identity {

bool is_sliced_file(const std::string& path) {
  return path.ends_with(".safetensors") && !path.ends_with("/adapter_model.safetensors");
}

namespace {

class InputClaims {
 public:
  // A file that `key` leads to, under the name that it has on every machine.
  Status add(const std::string& key, const std::string& path, const std::string& name) {
    if (!is_regular_file(path)) return ok_status();
    BRAID_ASSIGN(claims_[cat("reads ", key, ": ", name)], text_of(path));
    return ok_status();
  }
  Status add_files(const std::string& key, const Result<std::vector<std::string>>& paths) {
    if (!paths.ok()) return ok_status();
    for (const std::string& path : *paths)
      BRAID_TRY(add(key, path, path.substr(path.rfind('/') + 1)));
    return ok_status();
  }
  Status add_model(const std::string& key, const Origin& origin) {
    if (origin.folder.empty()) return add_files(key, std::vector<std::string>{origin.config_path});
    return add_files(key, model_files(origin.folder));
  }
  // Files of a name of the Hugging Face cache lie elsewhere on each machine.
  Status add_data(const std::string& key, const std::string& source) {
    if (source.empty() || source == "-" || source.rfind("task:", 0) == 0) return ok_status();
    const auto located = locate_data(source);
    if (!located.ok()) return ok_status();
    const auto paths = paths_of_rows(*located);
    if (!paths.ok()) return ok_status();
    for (const std::string& path : *paths) {
      const bool inside = path.rfind(*located, 0) == 0;
      BRAID_TRY(add(key, path, inside ? source + path.substr(located->size()) : path));
    }
    return ok_status();
  }
  // Its own hash, which was compared, in place of another look at it.
  void add_manifest(const Manifest& manifest) {
    claims_[cat("reads checkpoint: ", kManifestFile)] =
        cat("as the one with SHA-256 ", manifest.sha256.substr(0, 16));
  }
  Claims take() { return std::move(claims_); }

 private:
  // Roles may share a file.
  Result<std::string> text_of(const std::string& path) {
    if (const auto known = known_.find(path); known != known_.end()) return known->second;
    BRAID_ASSIGN(const std::string text,
                 is_sliced_file(path) ? weights_file_fingerprint(path) : file_fingerprint(path));
    note_progress();
    return known_[path] = cat("as ", text);
  }

  Claims claims_;
  std::map<std::string, std::string> known_;
};

Status add_models(const Config& config, const Graph& graph, InputClaims* claims) {
  for (const RoleSpec& role : graph.roles) {
    if (is_scorer(role)) continue;  // of the list of rewards
    BRAID_ASSIGN(const Origin origin, role_origin(config, role));
    BRAID_TRY(claims->add_model(origin_key(config, role.role.value), origin));
  }
  return ok_status();
}

// Whether a command begins with a script by its path, as in ./judge.py.
bool is_own_script(const std::vector<std::string>& command) {
  if (command.empty() || command[0].find('/') == std::string::npos) return false;
  return command[0].ends_with(".py") || command[0].ends_with(".sh");
}

Status add_rewards(const Config& config, InputClaims* claims) {
  for (size_t i = 0; i < config.reward.size(); ++i) {
    const RewardConfig& reward = config.reward[i];
    const std::string key = cat("reward[", i, "].");
    if (reward.type == "model") {
      BRAID_TRY(claims->add_model(key + "path", {reward.path, ""}));
      BRAID_TRY(claims->add_files(key + "path", tokenizer_files(reward.path)));
    }
    if (reward.type == "python")
      BRAID_TRY(claims->add_files(key + "path", std::vector<std::string>{reward.path}));
    // Programs may differ between machines; scripts may not.
    for (size_t word = is_own_script(reward.command) ? 0 : 1; word < reward.command.size(); ++word)
      BRAID_TRY(claims->add(key + "command", reward.command[word], reward.command[word]));
  }
  return ok_status();
}

std::string shared_folder_text(const Config& config) {
  return cat("the run folder must be shared by all ranks (", checkpoint_folder(config),
             " is not one folder for them); name one that every machine sees with run.dir or "
             "checkpoint.dir");
}

}  // namespace

Result<Claims> input_claims(const Config& config, const Graph& graph,
                            const ResumedCheckpoint& resumed) {
  InputClaims claims;
  BRAID_TRY(add_models(config, graph, &claims));
  if (needs_rewards(config, graph)) BRAID_TRY(add_rewards(config, &claims));
  const char* const tokenizer = config.tokenizer.path.empty() ? "model.path" : "tokenizer.path";
  if (const std::string path = tokenizer_path(config); !path.empty())
    BRAID_TRY(claims.add_files(tokenizer, tokenizer_files(path)));
  BRAID_TRY(claims.add("algorithm.loss", config.algorithm.loss, config.algorithm.loss));
  BRAID_TRY(
      claims.add("algorithm.advantages", config.algorithm.advantages, config.algorithm.advantages));
  BRAID_TRY(claims.add_data("data.train", config.data.train));
  if (evaluates(config)) BRAID_TRY(claims.add_data("data.eval", config.data.eval));
  BRAID_TRY(claims.add("rollout.replay", config.rollout.replay, config.rollout.replay));
  if (!resumed.none()) claims.add_manifest(resumed.manifest());
  return claims.take();
}

Result<Claims> checkpoint_claims(const ResumedCheckpoint& resumed) {
  if (resumed.none()) return Claims{{"resumes", "from step 0"}};
  BRAID_ASSIGN(const auto step, json_field<int64_t>(resumed.numbers(), "step"));
  const char* const open = resumed.numbers().contains("open_step") ? " and a part of the next" : "";
  return Claims{{"resumes", cat("from step ", step, open)}};
}

Status agree_on_inputs(World& world, const Config& config, const Graph& graph,
                       const ResumedCheckpoint& resumed) {
  BRAID_ASSIGN(const Claims checkpoint, checkpoint_claims(resumed));
  BRAID_TRY(world.agree("checkpoint", checkpoint, shared_folder_text(config)));
  BRAID_ASSIGN(const Claims inputs, input_claims(config, graph, resumed));
  return world.agree("inputs", inputs, kSameFiles);
}

Status agree_on_data(World& world, const DataSet& data) {
  return world.agree("data",
                     {{"reads data.train", cat("as ", data.size(), " records with SHA-256 ",
                                               data.lines_sha256().substr(0, 16))}},
                     kSameFiles);
}

Status agree_on_run_folder(World& world, const Config& config) {
  const auto mark = read_file(join_path(checkpoint_folder(config), kClaimFile));
  return world.agree(
      "run folder",
      {{"finds", mark.ok() ? cat("a claim ", *mark, " in it") : std::string("no run folder")}},
      shared_folder_text(config));
}

}  // namespace braid::inline identity

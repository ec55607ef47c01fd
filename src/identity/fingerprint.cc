#include "identity/fingerprint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "host/file.h"
#include "host/file_fingerprint.h"
#include "host/progress.h"
#include "host/sha256.h"
#include "identity/input_claims.h"
#include "nn/model_parts.h"
#include "nn/safetensors.h"
#include "nn/tensor_digest.h"
#include "plan/make_problem.h"
#include "reward/reward.h"

namespace braid::inline identity {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kLibraryOf = "library of ";
constexpr const char* kWhole = "sha256";
constexpr const char* kPieces = "pieces_sha256";

// What messages call the weights of a role, and the option that names them.
struct RoleName {
  std::string name, key;
};

// None: they decide nothing in this run.
std::optional<RoleName> role_name(const Config& config, const std::string& role, bool trained) {
  const RewardConfig* const reward =
      is_reward_role(role) && !trained ? reward_model(config, role) : nullptr;
  if (reward == nullptr) return RoleName{role, origin_key(config, role)};
  if (!config.rollout.replay.empty()) return std::nullopt;  // a replayed rollout brings the rewards
  return RoleName{cat("reward ", reward_name(*reward)),
                  cat("reward[", *reward_model_index(config, role), "].path")};
}

// What training leaves as it was: everything of a frozen model, the base under adapters.
Tensors frozen_tensors(const ModelInstance& role) {
  std::set<std::string> trained;
  if (role.optimizer)
    for (const auto& item : role.model->trainable_parameters()) trained.insert(item.first);
  Tensors out;
  for (auto& item : role.model->parameters())
    if (trained.count(item.first) == 0) out.push_back(std::move(item));
  return out;
}

void add(Json& out, const std::string& name, const std::string& key, const Tensors& tensors) {
  if (!tensors.empty()) out[name] = {{"key", key}, {kWhole, weights_fingerprint(tensors)}};
}

// Of the tensors that load_model() reads of a folder, by their names. Training changes adapters.
Result<std::string> stored_fingerprint(const std::string& folder, bool trained) {
  BRAID_ASSIGN(const std::vector<std::string> paths, model_files(folder));
  std::map<std::string, std::string> tensors;
  for (const std::string& path : paths) {
    if (trained ? !is_sliced_file(path) : !path.ends_with(".safetensors")) continue;
    BRAID_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
    for (const auto& [name, entry] : file.entries()) {
      Sha256 sum;
      sum.add(cat(entry.dtype, at::IntArrayRef(entry.shape), "\n"));
      for (const std::string_view part : parts_of_tensor(file.bytes(name))) sum.add(part);
      tensors[name] = sum.hex();
    }
    note_progress();
  }
  Sha256 all;
  for (const auto& [name, sum] : tensors) all.add(cat(name, " ", sum, "\n"));
  return all.hex();
}

// The strongest that both have decides: weights that are stored anew, in another type say, may
// still be the same in memory.
bool are_same(const Json& saved, const Json& now) {
  for (const char* sum : {kWhole, kPieces})
    if (saved.contains(sum) && now.contains(sum)) return saved[sum] == now[sum];
  return true;
}

}  // namespace

std::string weights_fingerprint(const Tensors& tensors) {
  Sha256 all;
  for (const auto& [name, tensor] : tensors) {
    all.add(cat(name, " ", tensor.scalar_type(), tensor.sizes(), "\n"));
    all.add(block_digests(tensor));
  }
  return all.hex();
}

Json frozen_fingerprints(const Config& config, const Roles& roles, const RewardModels& rewards) {
  Json out = Json::object();
  for (const auto& [name, role] : roles) {
    if (is_part(*role.model) || role.shards) continue;
    const auto called = role_name(config, name, role.optimizer != nullptr);
    if (!called) continue;
    add(out, called->name, called->key, frozen_tensors(role));
    if (!role.optimizer) role.model->rest();
  }
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (!rewards[i]) continue;
    add(out, cat("reward ", reward_name(config.reward[i])), cat("reward[", i, "].path"),
        rewards[i]->parameters());
    rewards[i]->rest();
  }
  return out;
}

Result<Json> stored_fingerprints(const Config& config, const Graph& graph) {
  Json out = Json::object();
  std::map<std::pair<std::string, bool>, std::string> known;  // roles may share a folder
  for (const RoleSpec& role : graph.roles) {
    const auto called = role_name(config, role.role.value, role.trained);
    if (!called || (role.trained && config.lora.rank == 0)) continue;
    BRAID_ASSIGN(const Origin origin, role_origin(config, role));
    if (origin.folder.empty()) continue;
    std::string& sum = known[{origin.folder, role.trained}];
    if (sum.empty()) {
      BRAID_ASSIGN(sum, stored_fingerprint(origin.folder, role.trained).at(called->key));
    }
    out[called->name] = {{"key", called->key}, {kPieces, sum}};
  }
  return out;
}

Result<Json> own_function_fingerprints(const Config& config) {
  Json out = Json::object();
  const std::pair<const char*, std::string> functions[] = {
      {"algorithm.loss", config.algorithm.loss},
      {"algorithm.advantages", config.algorithm.advantages}};
  for (const auto& [key, path] : functions) {
    if (path.empty()) continue;
    BRAID_ASSIGN(const std::string bytes, read_file(path).at(key));
    out[cat(kLibraryOf, key)] = {{"key", key}, {kWhole, sha256_hex(bytes)}};
  }
  return out;
}

Status check_same_weights(const Json& saved, const Json& now,
                          const std::vector<std::string>& allowed) {
  for (const auto& [name, own] : now.items()) {
    const std::string key = own["key"];
    const bool known = saved.is_object() && saved.contains(name);
    if (!known || are_same(saved[name], own)) continue;
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    const std::string what = name.rfind(kLibraryOf, 0) == 0
                                 ? "the file is not the one"
                                 : cat("the weights of ", name, " are not those");
    return invalid_input(cat(key, ": ", what,
                             " that the run was trained with; put back what was "
                             "there, begin a new run, or let it change with checkpoint.allow=[",
                             key, "]"));
  }
  return ok_status();
}

}  // namespace braid::inline identity

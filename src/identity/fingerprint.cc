#include "identity/fingerprint.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "host/file.h"
#include "host/sha256.h"
#include "nn/model_parts.h"
#include "nn/tensor_digest.h"
#include "plan/make_problem.h"
#include "reward/reward.h"

namespace braid::inline identity {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kLibraryOf = "library of ";

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
  if (!tensors.empty()) out[name] = {{"key", key}, {"sha256", weights_fingerprint(tensors)}};
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
    const RewardConfig* const reward =
        is_reward_role(name) && !role.optimizer ? reward_model(config, name) : nullptr;
    // A replayed rollout brings the rewards.
    if (reward != nullptr && !config.rollout.replay.empty()) continue;
    if (reward == nullptr) {
      add(out, name, origin_key(config, name), frozen_tensors(role));
    } else {
      add(out, cat("reward ", reward_name(*reward)),
          cat("reward[", *reward_model_index(config, name), "].path"), frozen_tensors(role));
    }
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

Result<Json> own_function_fingerprints(const Config& config) {
  Json out = Json::object();
  const std::pair<const char*, std::string> functions[] = {
      {"algorithm.loss", config.algorithm.loss},
      {"algorithm.advantages", config.algorithm.advantages}};
  for (const auto& [key, path] : functions) {
    if (path.empty()) continue;
    BRAID_ASSIGN(const std::string bytes, read_file(path).at(key));
    out[cat(kLibraryOf, key)] = {{"key", key}, {"sha256", sha256_hex(bytes)}};
  }
  return out;
}

Status check_same_weights(const Json& saved, const Json& now,
                          const std::vector<std::string>& allowed) {
  for (const auto& [name, own] : now.items()) {
    const std::string key = own["key"];
    const bool known = saved.is_object() && saved.contains(name);
    if (!known || own["sha256"] == saved[name].value("sha256", "")) continue;
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

// Where the weights of a run's models come from, as its configuration says, and what they share:
// one way for training and evaluation. Not thread-safe; models that share weights are used from one
// thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "dataflow/graph.h"
#include "nn/model.h"
#include "plan/make_problem.h"
#include "train/optimizer.h"
#include "train/weight_shards.h"

namespace braid::inline weights {

// A model and, when it is trained, its optimizer.
struct ModelInstance {
  std::unique_ptr<Model> model;
  std::unique_ptr<MainGradients> gradients;  // f32, where they are not the parameters' own
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightShards> shards;  // where the weights are whole only while they are used
  bool alone = false;                    // no other role may use its memory
  std::string source_folder;             // for export
  std::string config_path;  // of random weights, for export; "" where weights were loaded
  std::string shares_with;  // the trained role whose weights these are until they change, or ""
  int64_t skipped = 0;      // updates refused in a row
  // Of a role that follows another (weights/follow.h): its average in f32, where its weights are
  // not it, of each parameter, or of each bucket of slices; and whether a move was left half done.
  bool follows = false;
  std::vector<at::Tensor> average;
  bool torn = false;
};

using Roles = std::map<std::string, ModelInstance>;

// The part of a model that a rank has; all of it by default.
struct ModelPart {
  std::vector<LayerRange> ranges = {};
  TensorParallelGroup tensor = {};
  // Of a role that is trained on several ranks: its data-parallel ranks (null for one), and the
  // stage of ZeRO that says what they share.
  bool several = false;
  Communicator* data = nullptr;
  int zero_stage = 0;
  Communicator* weights = nullptr;  // of the same ranks, where weights are slices (ZeRO-3)
  bool alone = false;               // its memory comes and goes, so no other role may use it
  std::optional<KeptActivations> kept = {};  // by the plan, in place of train.recompute
  ReadBlocks* read = nullptr;                // gets what is read of files; null: nothing is hashed
  Communicator* readers = nullptr;           // LoadOptions::readers
};

// Where a role's weights come from.
struct Origin {
  std::string folder;       // Hugging Face folder; "" = random weights
  std::string config_path;  // of random weights: the architecture

  bool operator==(const Origin& other) const {
    return folder == other.folder && config_path == other.config_path;
  }
  // The folder that an export of the role takes its config.json and tokenizer from.
  std::string source_folder() const;
  std::string text() const;  // for messages
};

// Device, dtype, adapters and seed of all models of a run.
Result<ModelOptions> model_options(const Config& config);

// The origin of "actor", "critic", "reference", "teacher" or "reward"; errors name the key.
Result<Origin> role_origin(const Config& config, const std::string& role);

// Of a role of a graph: "reward", "reward_2", ... that are not trained score, and are models of the
// list of rewards; else role_origin().
Result<Origin> role_origin(const Config& config, const RoleSpec& role);
inline bool is_scorer(const RoleSpec& role) {
  return is_reward_role(role.role.value) && !role.trained;
}

// The key that names it: critic.path, reference.path, teacher.path, model.path or model.config.
std::string origin_key(const Config& config, const std::string& role);

// The architecture that a role of that origin has.
Result<ModelSpec> origin_spec(const Origin& origin, bool scalar_head, bool value_head = false);

Result<std::unique_ptr<Model>> load_weights(const Origin& origin, const LoadOptions& options);

// The policy that a run starts from, without adapters of its own.
Result<std::unique_ptr<Model>> load_policy(const Config& config);

// A model of the folder whose base never changes (under LoRA every trained role has one), or null.
const Model* find_base(const Roles& roles, const std::string& folder);

// Whether the configuration lets the weights of a frozen model leave memory while it rests.
bool offloads(const Config& config);
// The model under that policy.
Result<std::unique_ptr<Model>> frozen(std::unique_ptr<Model> model, const Config& config);

// An error if the actor of `roles` can write tokens that a model of this spec does not know.
Status check_vocabulary(const Roles& roles, const ModelSpec& spec);

void log_role(const std::string& name, const Model& model, const std::string& origin);

// A reward model, with the part that the options name. The base of a LoRA role of that folder is
// shared with it, unless it is to be `alone`. REQUIRES: a role that shares outlives it.
Result<std::unique_ptr<Model>> load_reward_model(const std::string& path, const Config& config,
                                                 const Roles& roles, const LoadOptions& options,
                                                 bool alone);

// The models of rewards of type model, aligned with config.reward, whole ones; null for other
// types. Models of one folder are one set of weights. REQUIRES: roles that share outlive them.
using RewardModels = std::vector<std::unique_ptr<Model>>;
Result<RewardModels> load_reward_models(const Config& config, const Roles& roles);

}  // namespace braid::inline weights

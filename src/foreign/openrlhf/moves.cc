// Changes of OpenRLHF's arguments that are worth pricing: they change speed or memory, not results.
#include <algorithm>

#include "base/text.h"
#include "foreign/openrlhf/openrlhf.h"

namespace braid::inline foreign {
namespace {

using Values = std::vector<std::string>;

void add(const std::string& key, const Values& values, std::vector<KeyMove>* out) {
  for (const std::string& value : values) out->push_back({{key, value}});
}

// The same devices in engines of other sizes: their number and width are legal only together.
void add_engines(int64_t devices, std::vector<KeyMove>* out) {
  for (const int64_t tp : {1, 2, 4, 8})
    if (devices % tp == 0 && devices >= tp)
      out->push_back(
          {{"vllm_tensor_parallel_size", cat(tp)}, {"vllm_num_engines", cat(devices / tp)}});
}

// All models and the engines on the devices that all groups have now.
void add_colocation(int64_t devices, int64_t tp, int64_t per_node, std::vector<KeyMove>* out) {
  const int64_t node = std::min(devices, per_node);
  if (node < 1 || tp < 1 || devices % tp != 0 || devices % node != 0) return;
  KeyMove move = {{"colocate_all_models", "True"}, {"vllm_num_engines", cat(devices / tp)}};
  for (const char* group : {"actor", "ref", "critic", "reward"}) {
    move[cat(group, "_num_nodes")] = cat(devices / node);
    move[cat(group, "_num_gpus_per_node")] = cat(node);
  }
  out->push_back(move);
}

std::vector<KeyMove> in_newer_names(const std::vector<KeyMove>& moves) {
  std::vector<KeyMove> out;
  for (const KeyMove& move : moves) {
    KeyMove named;
    for (const auto& [key, value] : move) named[newer_openrlhf_key(key)] = value;
    if (const auto both = named.find("ref_reward_offload"); both != named.end()) {
      named = {{"ref.offload", both->second}, {"reward.offload", both->second}};
    }
    out.push_back(named);
  }
  return out;
}

}  // namespace

std::vector<KeyMove> openrlhf_moves(const ForeignKeys& keys) {
  OpenRlhfSettings s;
  if (!foreign::read_settings(openrlhf_table(), keys, &s).ok()) return {};
  const Values flags = {"True", "False"}, sizes = {"1", "2", "4", "8", "16", "32", "64"};
  std::vector<KeyMove> out;
  add("vllm_tensor_parallel_size", {"1", "2", "4", "8"}, &out);
  add("vllm_num_engines", {"1", "2", "4", "8", "16", "32"}, &out);
  add("vllm_gpu_memory_utilization", {"0.4", "0.5", "0.6", "0.7", "0.8", "0.9"}, &out);
  for (const char* key : {"colocate_all_models", "colocate_actor_ref", "gradient_checkpointing",
                          "adam_offload", "ref_reward_offload", "deepspeed_enable_sleep"})
    add(key, flags, &out);
  if (s.estimator == "gae") add("colocate_critic_reward", flags, &out);
  add("micro_train_batch_size", sizes, &out);
  add("micro_rollout_batch_size", sizes, &out);
  add("zero_stage", {"1", "2", "3"}, &out);
  add("ds_tensor_parallel_size", {"1", "2", "4", "8"}, &out);
  add_engines(s.vllm_engines * s.vllm_tp, &out);
  for (const int64_t tp : {1, 2, 4, 8})
    add_colocation(openrlhf_devices(s), tp, s.actor.per_node, &out);
  const bool newer = std::any_of(keys.begin(), keys.end(), [](const auto& entry) {
    return is_newer_openrlhf_key(entry.first);
  });
  return newer ? in_newer_names(out) : out;
}

}  // namespace braid::inline foreign

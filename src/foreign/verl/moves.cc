// Changes of a verl configuration that are worth pricing: they change speed or memory, not results.
#include "base/text.h"
#include "foreign/verl/verl.h"

namespace braid::inline foreign {
namespace {

using Values = std::vector<std::string>;

const Values kFlags = {"True", "False"};
const Values kTokens = {"8192", "16384", "32768", "65536"};
const Values kSizes = {"1", "2", "4", "8", "16", "32", "64"};
const Values kParallel = {"1", "2", "4", "8"};

class Moves {
 public:
  explicit Moves(const ForeignKeys& keys) : keys_(keys) {}

  void add(const std::string& key, const Values& values) {
    for (const std::string& value : values) out_.push_back({{key, value}});
  }

  void add_move(const KeyMove& move) { out_.push_back(move); }

  // Micro-batches by number or by tokens; without a number verl refuses the former.
  void add_micro_batches(const std::string& size, const std::string& dynamic,
                         const std::string& tokens) {
    const auto stated = keys_.find(size);
    const bool numbered = stated != keys_.end() && stated->second != "null";
    add(dynamic, numbered ? kFlags : Values{"True"});
    add(size, kSizes);
    add(tokens, kTokens);
  }

  void add_offload(const std::string& worker, const std::string& fsdp, bool megatron,
                   bool trained) {
    const std::string group = megatron ? worker + "megatron." : fsdp;
    add(group + "param_offload", kFlags);
    if (trained) add(group + "optimizer_offload", kFlags);
  }

  // Layouts of Megatron for the workers that share one; `extra` changes with them.
  void add_layouts(const Values& workers, const ForeignKeys& extra) {
    for (const std::string& tp : kParallel)
      for (const std::string& pp : kParallel) {
        KeyMove move = extra;
        for (const std::string& worker : workers) {
          move[worker + "megatron.tensor_model_parallel_size"] = tp;
          move[worker + "megatron.pipeline_model_parallel_size"] = pp;
        }
        out_.push_back(move);
      }
  }

  std::vector<KeyMove> take() { return std::move(out_); }

 private:
  const ForeignKeys& keys_;
  std::vector<KeyMove> out_;
};

void add_megatron_moves(Moves& moves, const std::string& worker) {
  const std::string group = worker + "megatron.";
  moves.add(group + "tensor_model_parallel_size", kParallel);
  moves.add(group + "pipeline_model_parallel_size", kParallel);
  moves.add_layouts({worker}, {});
  if (worker == kRef) return;
  moves.add(group + "virtual_pipeline_model_parallel_size", {"null", "2", "4"});
  moves.add(group + "override_transformer_config.recompute_granularity",
            {"null", "full", "selective"});
}

// The other backend for all trained models, as verl wants it: Megatron with a layout, or FSDP.
void add_backend_moves(Moves& moves, bool megatron, bool critic) {
  KeyMove backend = {{cat(kActor, "strategy"), megatron ? "fsdp" : "megatron"}};
  Values workers = {kActor, kRef};
  if (critic) {
    backend["critic.strategy"] = megatron ? "fsdp" : "megatron";
    workers.push_back("critic.");
  }
  if (megatron)
    moves.add_move(backend);
  else
    moves.add_layouts(workers, backend);
}

void add_rollout_moves(Moves& moves) {
  const std::string rollout = kRollout;
  moves.add(rollout + "tensor_model_parallel_size", kParallel);
  moves.add(rollout + "gpu_memory_utilization", {"0.4", "0.5", "0.6", "0.7", "0.8", "0.9"});
  moves.add(rollout + "max_num_seqs", {"64", "128", "256", "512", "1024"});
  moves.add_micro_batches(rollout + "log_prob_micro_batch_size_per_gpu",
                          rollout + "log_prob_use_dynamic_bsz",
                          rollout + "log_prob_max_token_len_per_gpu");
}

void add_critic_moves(Moves& moves, bool megatron) {
  moves.add_micro_batches("critic.ppo_micro_batch_size_per_gpu", "critic.use_dynamic_bsz",
                          "critic.ppo_max_token_len_per_gpu");
  moves.add("critic.forward_micro_batch_size_per_gpu", kSizes);
  moves.add("critic.forward_max_token_len_per_gpu", kTokens);
  moves.add_offload("critic.", "critic.model.fsdp_config.", megatron, true);
  if (megatron)
    add_megatron_moves(moves, "critic.");
  else
    moves.add("critic.model.enable_gradient_checkpointing", kFlags);
}

}  // namespace

std::vector<KeyMove> verl_moves(const ForeignKeys& stated) {
  std::vector<std::string> notes;
  const auto version = verl_version(stated, "");
  if (!version.ok()) return {};
  const auto completed = complete_verl_keys(stated, *version->generation, &notes);
  if (!completed.ok()) return {};
  const ForeignKeys& keys = *completed;
  const auto value = [&](const std::string& key) {
    return verl_value(key, "${" + key + "}", keys);
  };
  const std::string actor = kActor, ref = kRef;
  const bool megatron = value(actor + "strategy") == "megatron";
  const bool critic = value("algorithm.adv_estimator") == "gae";
  Moves moves(keys);
  add_rollout_moves(moves);
  moves.add("trainer.balance_batch", kFlags);
  moves.add_micro_batches(actor + "ppo_micro_batch_size_per_gpu", actor + "use_dynamic_bsz",
                          actor + "ppo_max_token_len_per_gpu");
  moves.add_offload(actor, actor + "fsdp_config.", megatron, true);
  moves.add_micro_batches(ref + "log_prob_micro_batch_size_per_gpu",
                          ref + "log_prob_use_dynamic_bsz", ref + "log_prob_max_token_len_per_gpu");
  moves.add_offload(ref, ref + "fsdp_config.", megatron, false);
  if (megatron)
    add_megatron_moves(moves, kActor), add_megatron_moves(moves, kRef);
  else
    moves.add("actor_rollout_ref.model.enable_gradient_checkpointing", kFlags);
  add_backend_moves(moves, megatron, critic);
  if (critic) add_critic_moves(moves, value("critic.strategy") == "megatron");
  if (const std::string enabled = value("reward_model.enable");
      enabled == "True" || enabled == "true") {
    moves.add_micro_batches("reward_model.micro_batch_size_per_gpu", "reward_model.use_dynamic_bsz",
                            "reward_model.forward_max_token_len_per_gpu");
    moves.add("reward_model.model.fsdp_config.param_offload", kFlags);
  }
  return moves.take();
}

std::vector<std::string> verl_beside(const ForeignKeys& keys) {
  const auto found = keys.find(cat(kActor, "strategy"));
  if (found == keys.end() || keys.count("model_engine") > 0) return {};
  const bool megatron = found->second == "megatron";
  return {cat("with verl 0.7 and newer also: model_engine=", megatron ? "megatron" : "dp")};
}

}  // namespace braid::inline foreign

// What verl itself refuses, so that no configuration is priced that would not start.
#include <algorithm>

#include "base/text.h"
#include "foreign/verl/verl.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using Notes = std::vector<std::string>;

Status one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return ok_status();
  return invalid_input(cat(key, ": '", value, "' is not known", did_you_mean(value, known),
                           "; known: ", join(known, ", ")));
}

// The keys that size the micro-batches of one call.
struct MicroBatchKeys {
  std::string size, dynamic;
  std::string worker = "";  // in front of the worker's other keys
};

Status check_size(const std::string& key, int64_t size) {
  if (size >= 0) return ok_status();
  return invalid_input(cat(key, ": must be at least 1, is ", size, "; such as ", key, "=8"));
}

// More sequences of a micro-batch than a device has are those that it has.
void shorten_micro_batch(const PlanningProblem& problem, int64_t devices, const std::string& key,
                         VerlWorker* worker, Notes* notes) {
  const VerlLayout& layout = worker->layout();
  const int64_t grid = std::max<int64_t>(1, layout.tp * layout.pp * layout.cp);
  const int64_t sequences = minibatch_samples(problem) / std::max<int64_t>(1, devices / grid);
  if (worker->dynamic || sequences < 1 || worker->micro_batch <= sequences) return;
  notes->push_back(cat(key, "=", worker->micro_batch, " is more than the ", sequences,
                       " sequences of a device in a mini-batch; planned as ", sequences));
  worker->micro_batch = sequences;
}

Status check_training(const VerlWorker& worker, const MicroBatchKeys& keys,
                      const PlanningProblem& problem, int64_t devices) {
  BRAID_TRY(check_size(keys.size, worker.micro_batch));
  const VerlLayout& layout = worker.layout();
  const int64_t sequence = std::max<int64_t>(1, layout.cp);
  const bool sharded = !worker.megatron_like();
  if (sharded && devices % sequence != 0)
    return invalid_input(
        cat(keys.worker, "ulysses_sequence_parallel_size: ", sequence, " must divide the ", devices,
            " devices; nearest legal values: ", nearest_divisors(devices, sequence)));
  const int64_t grid = std::max<int64_t>(1, layout.tp * layout.pp * sequence);
  if (devices % grid != 0)
    return invalid_input(
        cat(keys.worker, worker.strategy, ": tensor x pipeline x context sizes = ", layout.tp,
            " x ", layout.pp, " x ", sequence, " must divide the ", devices,
            " devices; nearest legal products: ", nearest_divisors(devices, grid)));
  if (worker.dynamic) return ok_status();
  if (worker.micro_batch == 0)
    return invalid_input(cat(keys.size, ": is not set while ", keys.dynamic,
                             "=False, which verl refuses; set ", keys.size, "=8 or ", keys.dynamic,
                             "=True"));
  const int64_t sequences = minibatch_samples(problem) / (devices / grid);
  if (sequences < 1 || sequences % worker.micro_batch == 0) return ok_status();
  return invalid_input(cat(keys.size, ": ", worker.micro_batch, " must divide the ", sequences,
                           " sequences of a device in a mini-batch; nearest legal values: ",
                           nearest_divisors(sequences, worker.micro_batch)));
}

// verl asks for sizes of inference too; training's are the nearest where none is said.
Status settle_inference(const VerlWorker& training, const MicroBatchKeys& keys, VerlWorker* worker,
                        Notes* notes) {
  BRAID_TRY(check_size(keys.size, worker->infer_micro_batch));
  if (worker->infer_dynamic || worker->infer_micro_batch > 0) return ok_status();
  worker->infer_dynamic = training.dynamic;
  worker->infer_micro_batch = training.micro_batch;
  notes->push_back(
      cat(keys.size, " is not set while ", keys.dynamic, "=False, which verl refuses; planned as ",
          training.dynamic ? keys.dynamic + "=True" : cat(keys.size, "=", training.micro_batch)));
  return ok_status();
}

}  // namespace

Status check_verl_words(const VerlSettings& s) {
  const std::vector<std::string> strategies = {"fsdp",   "fsdp2",     "fsdp_turbo", "megatron",
                                               "veomni", "automodel", "torchtitan", "mlite"};
  const std::vector<std::string> recomputed = {"null", "none", "full", "selective"};
  const std::pair<const char*, const VerlWorker*> workers[] = {
      {"actor_rollout_ref.actor", &s.actor},
      {"actor_rollout_ref.ref", &s.ref},
      {"critic", &s.critic},
      {"reward_model", &s.reward}};
  for (const auto& [name, worker] : workers) {
    BRAID_TRY(one_of(cat(name, ".strategy"), worker->strategy, strategies));
    BRAID_TRY(one_of(cat(name, ".megatron.override_transformer_config.recompute_granularity"),
                     worker->megatron.granularity, recomputed));
  }
  return one_of("actor_rollout_ref.rollout.name", s.rollout.name,
                {"vllm", "sglang", "hf", "trtllm", "dynamo"});
}

Status check_verl(const PlanningProblem& problem, int64_t devices, VerlSettings* s, Notes* notes) {
  if (!(s->rollout.memory_share > 0 && s->rollout.memory_share <= 1))
    return invalid_input(cat("actor_rollout_ref.rollout.gpu_memory_utilization: must be above 0 ",
                             "and at most 1, is ", s->rollout.memory_share, "; such as 0.6"));
  const auto has = [&](const char* role) {
    return find_role(problem.graph, RoleId{role}) != nullptr;
  };
  const std::string actor = "actor_rollout_ref.actor.", rollout = "actor_rollout_ref.rollout.",
                    ref = "actor_rollout_ref.ref.", size = "log_prob_micro_batch_size_per_gpu",
                    dynamic = "log_prob_use_dynamic_bsz";
  shorten_micro_batch(problem, devices, actor + "ppo_micro_batch_size_per_gpu", &s->actor, notes);
  BRAID_TRY(check_training(
      s->actor, {actor + "ppo_micro_batch_size_per_gpu", actor + "use_dynamic_bsz", actor}, problem,
      devices));
  BRAID_TRY(settle_inference(s->actor, {rollout + size, rollout + dynamic}, &s->actor, notes));
  if (has("reference"))
    BRAID_TRY(settle_inference(s->actor, {ref + size, ref + dynamic}, &s->ref, notes));
  if (has("critic")) {
    shorten_micro_batch(problem, devices, "critic.ppo_micro_batch_size_per_gpu", &s->critic, notes);
    BRAID_TRY(check_training(
        s->critic, {"critic.ppo_micro_batch_size_per_gpu", "critic.use_dynamic_bsz", "critic."},
        problem, devices));
    BRAID_TRY(check_size("critic.forward_micro_batch_size_per_gpu", s->critic.infer_micro_batch));
  }
  if (!s->reward_enabled) return ok_status();
  const VerlWorker& like = has("critic") ? s->critic : s->actor;
  return settle_inference(like,
                          {"reward_model.micro_batch_size_per_gpu", "reward_model.use_dynamic_bsz"},
                          &s->reward, notes);
}

}  // namespace braid::inline foreign

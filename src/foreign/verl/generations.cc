// verl's configuration files by version (verl/trainer/config of the tagged releases 0.2 to 0.9):
// what they say where a user says nothing. Newer versions are read as the newest known one.
#include "base/text.h"
#include "foreign/verl/verl.h"

namespace braid::inline foreign {
namespace {

// Of every version: values that follow other keys, as the files write them.
ForeignKeys followers() {
  const std::string actor = "actor_rollout_ref.actor.", critic = "critic.";
  ForeignKeys keys = {
      {cat(kRef, "strategy"), "${actor_rollout_ref.actor.strategy}"},
      {cat(kRef, "ulysses_sequence_parallel_size"),
       "${oc.select:actor_rollout_ref.actor.ulysses_sequence_parallel_size,1}"},
      {cat(kRollout, "prompt_length"), "${oc.select:data.max_prompt_length,512}"},
      {cat(kRollout, "response_length"), "${oc.select:data.max_response_length,512}"},
      {"critic.ppo_mini_batch_size",
       "${oc.select:actor_rollout_ref.actor.ppo_mini_batch_size,256}"},
      {"critic.ppo_epochs", "${oc.select:actor_rollout_ref.actor.ppo_epochs,1}"},
      {"critic.use_dynamic_bsz", "${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}"},
      {"critic.ppo_max_token_len_per_gpu", "32768"},
      {"critic.forward_max_token_len_per_gpu", "${.ppo_max_token_len_per_gpu}"},
      {"critic.forward_micro_batch_size_per_gpu",
       "${oc.select:.ppo_micro_batch_size_per_gpu,null}"},
      {"reward_model.use_dynamic_bsz", "${critic.use_dynamic_bsz}"},
      {"reward_model.forward_max_token_len_per_gpu", "${critic.forward_max_token_len_per_gpu}"}};
  for (const char* group : {kRef, kRollout}) {
    keys[cat(group, "log_prob_use_dynamic_bsz")] =
        "${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}";
    keys[cat(group, "log_prob_max_token_len_per_gpu")] =
        "${oc.select:actor_rollout_ref.actor.ppo_max_token_len_per_gpu,16384}";
  }
  return keys;
}

// From 0.7 on the reference is laid out as the actor is, unless it says otherwise.
ForeignKeys reference_follows_actor() {
  ForeignKeys keys;
  for (const char* key :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size", "context_parallel_size",
        "expert_model_parallel_size", "expert_tensor_parallel_size", "param_offload"})
    keys[cat(kRef, "megatron.", key)] = cat("${oc.select:", kActor, "megatron.", key, ",null}");
  keys[cat(kRef, "veomni.ulysses_parallel_size")] =
      cat("${oc.select:", kActor, "veomni.ulysses_parallel_size,1}");
  keys[cat(kRef, "veomni.expert_parallel_size")] =
      cat("${oc.select:", kActor, "veomni.expert_parallel_size,1}");
  return keys;
}

ForeignKeys joined(ForeignKeys keys, const ForeignKeys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

std::vector<VerlGeneration> make_generations() {
  const ForeignKeys all = followers();
  const ForeignKeys more_sequences = joined(all, {{cat(kRollout, "max_num_seqs"), "1024"}});
  ForeignKeys first = more_sequences;
  for (const std::string& worker : {std::string(kActor), std::string(kRef), std::string("critic."),
                                    std::string("reward_model.")})
    first[cat(worker, "megatron.tensor_model_parallel_size")] = "4";
  return {{"0.2", joined(first, {{"trainer.balance_batch", "False"}})},
          {"0.3", first},
          {"0.4", joined(more_sequences,
                         {{"critic.strategy", "${actor_rollout_ref.actor.strategy}"},
                          {"reward_model.strategy", "${actor_rollout_ref.actor.strategy}"}})},
          {"0.5", more_sequences},
          {"0.7", joined(more_sequences, reference_follows_actor())},
          {"0.9", joined(all, reference_follows_actor())}};
}

// Keys that came with a version.
struct Sign {
  const char* pattern;
  const char* since;
};
constexpr Sign kSigns[] = {{"trainer.v1.*", "0.9"},
                           {"trainer.use_v1", "0.9"},
                           {"*.turbo_config.*", "0.9"},
                           {"distillation.*", "0.9"},
                           {"critic.fsdp.*", "0.9"},
                           {"model_engine", "0.7"},
                           {"reward.*", "0.7"},
                           {"*.veomni.*", "0.7"},
                           {"actor_rollout_ref.rollout.nnodes", "0.7"}};
// Keys that a version took away, with the last generation that had them.
constexpr Sign kLast[] = {{"reward_model.micro_batch_size*", "0.5"},
                          {"reward_model.model.fsdp_config.*", "0.5"},
                          {"reward_model.megatron.*", "0.5"},
                          {"reward_model.enable_resource_pool", "0.5"},
                          {"trainer.use_legacy_worker_impl", "0.7"}};

// "0.7.1" as 7: no version of another kind is out.
std::optional<int64_t> minor_of(const std::string& version) {
  const std::vector<std::string> parts = split(version, '.');
  int64_t major = 0, minor = 0;
  if (parts.size() < 2 || !parse_int(parts[0], &major) || !parse_int(parts[1], &minor))
    return std::nullopt;
  return 1000 * major + minor;
}

const VerlGeneration& generation_of(int64_t minor) {
  const VerlGeneration* found = &verl_generations().front();
  for (const VerlGeneration& generation : verl_generations())
    if (*minor_of(generation.since) <= minor) found = &generation;
  return *found;
}

const Sign* sign_of(const ForeignKeys& keys, const Sign* begin, const Sign* end) {
  for (const Sign* sign = begin; sign != end; ++sign)
    for (const auto& [key, value] : keys)
      if (foreign::matches(sign->pattern, key)) return sign;
  return nullptr;
}

}  // namespace

const std::vector<VerlGeneration>& verl_generations() {
  static const std::vector<VerlGeneration> generations = make_generations();
  return generations;
}

Result<VerlVersion> verl_version(const ForeignKeys& keys, const std::string& stated) {
  if (!stated.empty()) {
    const auto minor = minor_of(stated[0] == 'v' ? stated.substr(1) : stated);
    if (!minor || *minor < 2)
      return invalid_input(cat("--framework-version: '", stated,
                               "' is no version of verl from 0.2 on; such as 0.7"));
    return VerlVersion{&generation_of(*minor), cat("verl ", stated, " (stated)")};
  }
  if (const Sign* sign = sign_of(keys, std::begin(kSigns), std::end(kSigns))) {
    const auto& generation = generation_of(*minor_of(sign->since));
    return VerlVersion{&generation,
                       cat("verl ", generation.since, " or later (it has ", sign->pattern, ")")};
  }
  if (const Sign* sign = sign_of(keys, std::begin(kLast), std::end(kLast))) {
    const auto& generation = generation_of(*minor_of(sign->since));
    return VerlVersion{&generation,
                       cat("verl ", generation.since, " (the last with ", sign->pattern, ")")};
  }
  const VerlGeneration& newest = verl_generations().back();
  return VerlVersion{&newest, cat("verl ", newest.since,
                                  ", the newest known (no key tells another; say "
                                  "--framework-version)")};
}

}  // namespace braid::inline foreign

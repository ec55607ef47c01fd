// What becomes of verl's keys that no plan says: without effect on a step, or not priced.
#include "foreign/verl/verl.h"

namespace braid::inline foreign {
namespace {

using foreign::KeyFamily;

// Every pattern with the same reason.
void add(const char* why, const std::vector<const char*>& patterns, std::vector<KeyFamily>* out) {
  for (const char* pattern : patterns) out->push_back({pattern, why});
}

// NOLINT(size) in the bodies: a table is one expression.
std::vector<KeyFamily> not_priced() {  // NOLINT(size)
  std::vector<KeyFamily> out;
  add("logits are planned in chunks, whatever the kernels",
      {"*.use_fused_kernels", "*.fused_kernel_options.*", "*.use_liger", "*.tiled_mlp.*",
       "*.entropy_from_logits_with_chunking", "*.entropy_from_logits_chunk_size",
       "*.entropy_checkpointing", "*.calculate_entropy", "*.calculate_sum_pi_squared"},
      &out);
  add("sequences are planned packed, without padding",
      {"*.pad_to_length*", "*.pad_bshd_to_minibatch_max", "*.use_thd",
       "*.max_seqlen_per_dp_cp_rank", "*.dynamic_context_parallel", "*.use_prefix_grouper"},
      &out);
  add("activations stay on the devices in every plan",
      {"*.enable_activation_offload", "*.activation_gpu_limit"}, &out);
  add("the backend's kernels and overlap are those that the calibration measured",
      {"*.use_torch_compile",
       "*.forward_prefetch",
       "*.override_transformer_config.*",
       "*.override_ddp_config.*",
       "*.override_mcore_model_config.*",
       "*.*_implementation",
       "*.backend_config.*",
       "*.moe_config.*",
       "*.mixed_precision*",
       "*.model_dtype",
       "*.grad_offload",
       "*.offload_policy",
       "*.enable_fsdp_offload",
       "*.use_orig_params",
       "*.wrap_policy.*",
       "*.attn_type",
       "*.spmd_backend",
       "*.impl_cfg.*",
       "*.attention_backend_override",
       "*.turbo_config.*",
       "*.use_distributed_optimizer",
       "*.distributed_strategy",
       "*.defer_fsdp_grad_sync",
       "*.enable_compile",
       "*.enable_fp8",
       "*.mp_*_dtype",
       "*.activation_checkpointing",
       "*.data_parallel_shard_size",
       "*.data_parallel_size",
       "*.max_seq_len",
       "*.basic_modules",
       "*.enable_reentrant",
       "*.optim.override_optimizer_config*",
       "*.qat.*",
       "actor_rollout_ref.model.use_shm"},
      &out);
  add("the engine's scheduling is planned as continuous batching with captured graphs",
      {"*rollout.enforce_eager", "*rollout.enable_chunked_prefill",
       "*rollout.enable_prefix_caching", "*rollout.free_cache_engine",
       "*rollout.cudagraph_capture_sizes", "*rollout.engine_kwargs.*", "*rollout.dtype",
       "*rollout.quantization_config_file", "*rollout.scheduling_policy",
       "*rollout.multi_stage_wake_up", "*rollout.enable_sleep_mode", "*rollout.disaggregation.*",
       "*rollout.over_sample_rate", "*rollout.limit_images", "*rollout.max_len*",
       "*rollout.standalone_gpu_memory_utilization", "*rollout.mtp*", "*inference.*"},
      &out);
  add("turns with tools, environments and users are not planned",
      {"*rollout.multi_turn.*", "*rollout.agent.*", "*rollout.custom.*"}, &out);
  add("how often a filter, a schedule or a policy changes the work is not known beforehand",
      {"algorithm.filter_groups.*", "async_training.*", "trainer.v1.*", "data.oversample_factor",
       "rollout.n", "async_flow.*", "actor_rollout_ref.rollout.ignore_eos", "skip.*"},
      &out);
  add("draft layers are not planned", {"*.model.mtp.*"}, &out);
  add("a group of workers of its own is not planned", {"async_resources.*"}, &out);
  add("the way of new weights to the engine is planned as a direct copy",
      {"*rollout.checkpoint_engine.*", "*rollout.layered_summon",
       "*rollout.update_weights_bucket_megabytes"},
      &out);
  add("the first steps alone differ", {"trainer.critic_warmup"}, &out);
  add("what a sandbox or a process takes is not known",
      {"*sandbox_fusion*", "*.use_reward_loop", "*launch_reward_fn_async"}, &out);
  add("other teachers are planned as the first", {"distillation.teacher_models.*"}, &out);
  return out;
}

std::vector<KeyFamily> without_effect() {  // NOLINT(size)
  std::vector<KeyFamily> out;
  add("sequences are planned packed, as True says; with False verl computes padding too",
      {"*.use_remove_padding"}, &out);
  add("what is learnt, not what it costs",
      {"*.optim.*",
       "*.optim",
       "*.clip_ratio*",
       "*.clip_cov_*",
       "*.kl_cov_*",
       "*.policy_loss.*",
       "*.loss_agg_mode",
       "*.loss_scale_factor",
       "*.loss_mode",
       "*.entropy_coeff",
       "*.kl_loss_coef",
       "*.kl_loss_type",
       "*.grad_clip",
       "*.tau_pos",
       "*.tau_neg",
       "*.cliprange_value",
       "*.shuffle",
       "*.data_loader_seed",
       "*.ppo_kl_coef*",
       "*.lora_alpha",
       "*.lora.*",
       "*.target_modules",
       "*.exclude_modules",
       "*.lora_adapter_path",
       "*.freeze_*",
       "*.router_replay.*",
       "*.rollout_is*",
       "*.use_rollout_log_probs",
       "algorithm.gamma",
       "algorithm.lam",
       "algorithm.kl_ctrl.*",
       "algorithm.kl_penalty",
       "algorithm.norm_adv_by_std_in_grpo",
       "algorithm.use_pf_ppo",
       "algorithm.pf_ppo.*",
       "algorithm.rollout_correction.*",
       "algorithm.gdpo_*",
       "algorithm.*_keys",
       "distillation.distillation_loss.*",
       "distillation.teacher_key",
       "algorithm.optimal_token_baseline*",
       "*.use_fused_rmsnorm"},
      &out);
  add("what sequences hold, not how long they are",
      {"data.train_files",
       "data.val_files",
       "data.prompt_key",
       "data.image_key",
       "data.video_key",
       "data.audio_key",
       "data.reward_fn_key",
       "data.*_key",
       "data.truncation",
       "data.shuffle",
       "data.seed",
       "data.return_*",
       "data.filter_*",
       "data.custom_cls.*",
       "data.datagen.*",
       "data.sampler.*",
       "data.tokenizer",
       "data.use_shm",
       "data.trust_remote_code",
       "data.dataloader_num_workers",
       "data.train_max_samples",
       "data.val_max_samples",
       "data.validation_shuffle",
       "data.apply_chat_template_kwargs*",
       "data.tool_config_path",
       "data.image_patch_size",
       "data.max_pixels",
       "data.min_pixels",
       "data.mm_processor*",
       "data.accuracy_*",
       "data.cache_dir",
       "data.need_tools_kwargs"},
      &out);
  add("sampling decides what is drawn; lengths are those that you state",
      {"*rollout.temperature",
       "*rollout.top_k",
       "*rollout.top_p",
       "*rollout.do_sample",
       "*rollout.seed",
       "*rollout.full_determinism",
       "*rollout.repetition_penalty",
       "*rollout.calculate_log_probs",
       "*rollout.logprobs_mode",
       "*rollout.mode",
       "*rollout.load_format",
       "*rollout.skip_tokenizer_init",
       "*rollout.disable_log_stats",
       "*rollout.enable_rollout_routing_replay",
       "*rollout.moe_load_balance_metrics_interval",
       "*rollout.prometheus.*",
       "*rollout.trace.*",
       "*rollout.skip*",
       "*rollout.prompt_length",
       "*rollout.response_length",
       "*rollout.max_model_len",
       "*rollout.total_rollout_steps",
       "*rollout.custom_async_server*",
       "*rollout.n_resp*"},
      &out);
  add("validation is no part of a step",
      {"*.val_kwargs.*", "data.val_batch_size", "trainer.val_*", "trainer.test_freq",
       "trainer.validation_data_dir", "trainer.log_val_generations"},
      &out);
  add("what is logged, saved or resumed between steps",
      {"*.checkpoint.*",
       "*.profiler.*",
       "*.profiler",
       "global_profiler.*",
       "trainer.logger*",
       "trainer.project_name",
       "trainer.experiment_name",
       "trainer.save_freq",
       "trainer.resume_*",
       "trainer.default_local_dir",
       "trainer.default_hdfs_dir",
       "trainer.max_*_ckpt_to_keep",
       "trainer.del_local_ckpt_after_load",
       "trainer.remove_previous_ckpt_in_save",
       "trainer.rollout_data_dir",
       "trainer.total_epochs",
       "trainer.total_training_steps",
       "trainer.profile_steps",
       "trainer.npu_profile.*",
       "trainer.esi_redundant_time",
       "trainer.log_freq",
       "trainer.tensorboard_dir",
       "trainer.rl_logging_board_dir",
       "trainer.debug",
       "trainer.hf_tokenizer_path",
       "trainer.profile_continuous_steps"},
      &out);
  add("how the job is started",
      {"ray_kwargs.*", "ray_init.*", "trainer.ray_wait_register_center_timeout", "*.nccl_timeout",
       "trainer.use_legacy_worker_impl", "trainer.use_v1", "actor_rollout_ref.hybrid_engine",
       "transfer_queue.*", "hydra.*", "trainer.controller_nsight_options.*",
       "trainer.worker_nsight_options.*", "actor_rollout_ref.nccl_timeout", "npu_profile.*",
       "actor@actor_rollout_ref.actor", "*.model_engine"},
      &out);
  add("the devices are those of --gpu", {"trainer.device", "*.device_name"}, &out);
  add("how weights are read and stored",
      {"*.trust_remote_code",
       "*.external_lib",
       "*.custom_chat_template",
       "*.tokenizer_path",
       "*.hf_config_path",
       "*.use_dist_checkpointing",
       "*.dist_checkpointing_*",
       "*.use_mbridge",
       "*.vanilla_mbridge",
       "*.dist_ckpt_*",
       "*.distrib_optim_*",
       "*.load_checkpoint_path",
       "*.ckpt_manager",
       "*.init_device",
       "*.force_use_huggingface",
       "*.load_weight",
       "*.seed",
       "*.full_determinism",
       "*.forward_only",
       "*.model.override_config*",
       "*.use_kl_in_reward",
       "*.attn_implementation",
       "*.input_tokenizer",
       "*.model.use_shm"},
      &out);
  add("rewards by rules are not planned",
      {"custom_reward_function.*", "reward.custom_reward_function.*",
       "reward_model.reward_manager*", "reward.reward_manager.*", "reward.reward_manager",
       "*.reward_kwargs.*", "*.num_workers", "reward.num_workers", "reward_model.reward_loop_*",
       "reward_model.max_length", "reward_model.data_processor_*", "reward.reward_loop_*"},
      &out);
  add("it follows rollout.n and the strategy of the worker",
      {"*.rollout_n", "*.fsdp_config.strategy", "*.fsdp.strategy", "*.veomni.strategy",
       "*._target_"},
      &out);
  return out;
}

foreign::KeyKnowledge make_knowledge() {
  foreign::KeyKnowledge knowledge;
  for (const foreign::SettingKey<VerlSettings>& entry : verl_table()) {
    knowledge.read.insert(entry.key);
    // Read as that of one device (foreign/verl/defaults.cc).
    const std::string each = "micro_batch_size_per_gpu", per_device = "_per_gpu";
    if (entry.key.find(each) != std::string::npos)
      knowledge.read.insert(entry.key.substr(0, entry.key.size() - per_device.size()));
  }
  knowledge.read.insert("actor@actor_rollout_ref.actor");
  knowledge.read.insert("actor_rollout_ref.actor.model_engine");
  knowledge.not_priced = not_priced();
  knowledge.without_effect = without_effect();
  return knowledge;
}

}  // namespace

const foreign::KeyKnowledge& verl_knowledge() {
  static const foreign::KeyKnowledge knowledge = make_knowledge();
  return knowledge;
}

}  // namespace braid::inline foreign

// What keys of TRL, verl and OpenRLHF are answered with, key by key.
#include "foreign/keys/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/text.h"
#include "config/load.h"
#include "dataflow/graph.h"
#include "foreign/keys/names.h"

namespace braid::inline dataflow {
namespace {

using testing::HasSubstr;

Status load_overrides(std::vector<std::string> overrides) {
  ConfigSources sources;
  sources.overrides = std::move(overrides);
  sources.algorithms = algorithm_names();
  return load_config(sources).status();
}

struct Answer {
  const char* key;   // with its value, as an override
  const char* says;  // part of the message
  // Further keys of the same configuration, which conversions look at; "" = none.
  const char* beside = "";
};

void PrintTo(const Answer& answer, std::ostream* out) { *out << answer.key; }

// clang-format off
constexpr Answer kTrl[] = {
    {"model_name_or_path=m", "write 'model.path: m'"},
    {"learning_rate=1e-6", "write 'optim.actor.lr: 1e-6'"},
    {"per_device_train_batch_size=8", "for 8 that is 8 / rollout.samples_per_prompt"},
    {"per_device_train_batch_size=6", "write 'rollout.prompts_per_step: 1', each with 8 responses", "num_generations=8"},
    {"per_device_train_batch_size=16", "write 'rollout.prompts_per_step: 8'", "num_generations=8 gradient_accumulation_steps=4"},
    {"generation_batch_size=64", "write 'rollout.prompts_per_step: 8'", "num_generations=8 gradient_accumulation_steps=4"},
    {"gradient_accumulation_steps=4", "here it is train.micro_tokens"},
    {"num_generations=8", "write 'rollout.samples_per_prompt: 8'"},
    {"max_completion_length=512", "write 'rollout.max_response_length: 512'"},
    {"max_prompt_length=512", "write 'data.max_prompt_length: 512'"},
    {"temperature=0.9", "write 'rollout.temperature: 0.9'"},
    {"top_k=-1", "write 'rollout.top_k: 0'"},
    {"beta=0.04", "write 'algorithm.kl.coef: 0.04'"},
    {"beta=0.3", "here it is algorithm.beta: instead of 0.3 write 'algorithm.beta: 0.3'", "algorithm.name=dpo"},
    {"beta=0.5", "without a counterpart here: distill learns from the reverse KL alone", "algorithm.name=distill"},
    {"loss_type=ipo", "here it is algorithm.preference_loss: instead of ipo write 'algorithm.preference_loss: ipo'"},
    {"loss_type=[hinge]", "write 'algorithm.preference_loss: hinge'"},
    {"loss_type=[sigmoid, sft]", "here it is algorithm.preference_loss, and [sigmoid, sft] has no counterpart: it may be sigmoid, ipo, hinge or robust, and a run has one of them"},
    {"loss_type=apo_zero", "here it is algorithm.preference_loss, and apo_zero has no counterpart: it may be sigmoid, ipo, hinge or robust"},
    {"loss_type=simpo", "simpo has no counterpart: of losses of preferences without a reference there is orpo"},
    {"loss_type=cispo", "here it is algorithm.name: instead of cispo write 'algorithm.name: cispo'"},
    {"loss_weights=[0.8, 0.2]", "a run has one loss of preferences"},
    {"rloo_k=4", "write 'rollout.samples_per_prompt: 4'"},
    {"rpo_alpha=1.0", "no likelihood of the chosen response is added to dpo"},
    {"cpo_alpha=1.0", "no likelihood of the chosen response is added to dpo"},
    {"simpo_gamma=0.5", "losses of preferences have no target margin"},
    {"reference_free=true", "dpo has its reference always"},
    {"f_divergence_type=js_divergence", "dpo's log-ratios are those of the reverse KL"},
    {"use_weighting=true", "pairs weigh the same"},
    {"ld_alpha=0.5", "all tokens of both responses count"},
    {"precompute_ref_log_probs=true", "the reference's log-probs are computed in every step"},
    {"token_level_kl=true", "the penalty is taken from the reward of each token"},
    {"mixture_coef=0.5", "responses are the policy's own"},
    {"judge=pair_rm", "here it is reward (entries that score responses"},
    {"lmbda=0.5", "every response is the policy's own"},
    {"seq_kd=true", "responses of a teacher are learned by sft"},
    {"label_smoothing=0.1", "write 'algorithm.label_smoothing: 0.1'"},
    {"epsilon=0.2", "write 'algorithm.clip_low: 0.2' and 'algorithm.clip_high: 0.2'"},
    {"epsilon_high=0.28", "write 'algorithm.clip_high: 0.28'"},
    {"delta=None", "write 'algorithm.dual_clip: 0'"},
    {"num_iterations=2", "write 'train.epochs_per_rollout: 2'"},
    {"steps_per_generation=4", "write 'train.minibatches: 4'"},
    {"steps_per_generation=16", "write 'train.minibatches: 2'", "gradient_accumulation_steps=8"},
    {"steps_per_generation=8", "write 'train.minibatches: 1', with the completions of one optimizer step", "gradient_accumulation_steps=16"},
    {"steps_per_generation=6", "6 has no counterpart: of 6 micro-batches of a rollout an optimizer step takes 4", "gradient_accumulation_steps=4"},
    {"gradient_accumulation_steps=8", "here it is train.minibatches: instead of 8 write 'train.minibatches: 2'", "steps_per_generation=16"},
    {"gradient_accumulation_steps=2", "write 'train.minibatches: 4'", "generation_batch_size=64 per_device_train_batch_size=8"},
    {"per_device_train_batch_size=4", "write 'rollout.prompts_per_step: 8'", "num_generations=8 steps_per_generation=16 gradient_accumulation_steps=8"},
    {"per_device_train_batch_size=4", "write 'rollout.prompts_per_step: 32'", "algorithm.name=dpo gradient_accumulation_steps=8"},
    {"max_steps=100", "write 'train.total_steps: 25', of 4 optimizer steps each", "steps_per_generation=16 gradient_accumulation_steps=8 num_iterations=2"},
    {"max_steps=-1", "-1 has no counterpart: it is left to the epochs over the data (num_train_epochs)"},
    {"save_steps=100", "write 'checkpoint.every_steps: 50', of 2 optimizer steps each", "num_iterations=2"},
    {"warmup_ratio=0.1", "write 'optim.actor.warmup_steps: 10'", "max_steps=100 num_iterations=2"},
    {"normalize_advantages=true", "write 'algorithm.normalize_advantages: batch'"},
    {"normalize_advantages=false", "write 'algorithm.normalize_advantages: none'"},
    {"truncation_mode=keep_start", "keep_start has no counterpart: nothing is cut at its end"},
    {"truncation_mode=keep_end", "write 'data.overlong: truncate_left', which cuts prompts alone"},
    {"train_sampling_strategy=sequential", "write 'data.shuffle: false'"},
    {"learning_rate=1e-5", "write 'optim.reward.lr: 1e-5'", "algorithm.name=rm"},
    {"lr_scheduler_kwargs.min_lr=1e-7", "write 'optim.actor.min_lr_ratio: 0.1'", "learning_rate=1e-6"},
    {"sapo_temperature_pos=1", "sapo is not there; a loss of tokens may be one of your own"},
    {"epsilon=0.2", "write 'algorithm.clip_low: 0.2'", "epsilon_high=0.28"},
    {"loss_type=dapo", "write 'algorithm.loss_agg: token_mean'"},
    {"loss_type=dr_grpo", "for dr_grpo that is algorithm.loss_agg: constant_norm, with the longest"},
    {"loss_type=dr_grpo", "write 'algorithm.loss_agg: constant_norm' and 'algorithm.loss_norm_tokens: 256'", "max_completion_length=256"},
    {"loss_type=sapo", "sapo has no counterpart: a loss of tokens may be one of your own (algorithm.loss"},
    {"loss_type=chunked_nll", "chunked_nll has no counterpart: sft learns the log-likelihood of tokens as it is"},
    {"loss_type=nothing", "there is no loss 'nothing'; algorithm.name may be ppo, grpo, dapo, dr_grpo"},
    {"scale_rewards=false", "write 'algorithm.normalize_advantages: none'"},
    {"importance_sampling_level=sequence", "write 'algorithm.ratio_level: sequence'"},
    {"importance_sampling_level=sequence_token", "sequence_token has no counterpart"},
    {"mask_truncated_completions=True", "write 'algorithm.mask_truncated: true'"},
    {"teacher_model_name_or_path=big", "write 'teacher.path: big'"},
    {"desirable_weight=0.5", "write 'algorithm.wanted_weight: 0.5'"},
    {"undesirable_weight=2", "write 'algorithm.unwanted_weight: 2'"},
    {"beta=0.3", "write 'algorithm.beta: 0.3'", "algorithm.name=kto"},
    {"sync_ref_model=true", "write 'reference.sync_every: 512'"},
    {"sync_ref_model=true", "write 'reference.sync_every: 64'", "ref_model_sync_steps=64"},
    {"sync_ref_model=false", "write 'reference.sync_every: 0'"},
    {"ref_model_mixup_alpha=0.6", "write 'reference.ema: 0.4' and 'reference.sync_every: 512'"},
    {"ref_model_sync_steps=64", "write 'reference.sync_every: 64'"},
    {"use_vllm=true", "sampler and trainer are one engine"},
    {"vllm_mode=colocate", "sampler and trainer are one engine"},
    {"vllm_server_port=8000", "sampler and trainer are one engine"},
    {"vllm_tensor_parallel_size=2", "write 'parallel: {generate: {tp: 2}}'"},
    {"vllm_tensor_parallel_size=1", "1 has no counterpart: 1 is what a call has"},
    {"vllm_gpu_memory_utilization=0.3", "here it is rollout.kv_budget_tokens"},
    {"vllm_importance_sampling_cap=2", "write 'algorithm.tis_cap: 2'"},
    {"reward_weights=[1, 0.5]", "'weight' of each entry"},
    {"log_completions=true", "write 'log.samples_every: 1'"},
    {"num_completions_to_print=3", "here it is log.samples_every"},
    {"save_strategy=no", "write 'checkpoint.every_steps: 0' and 'checkpoint.every_minutes: 0'"},
    {"save_strategy=steps", "for steps that is the number of steps itself"},
    {"save_steps=500", "write 'checkpoint.every_steps: 500'"},
    {"save_steps=0.1", "for 0.1 that is 0.1 x train.total_steps"},
    {"save_steps=0.1", "write 'checkpoint.every_steps: 20'", "max_steps=200"},
    {"save_total_limit=3", "write 'checkpoint.keep_last: 3'"},
    {"eval_strategy=steps", "the number of steps itself (eval_steps)"},
    {"eval_steps=50", "write 'eval.every_steps: 50'"},
    {"eval_steps=50", "50, where data.eval has prompts and reward has entries: an evaluation scores", "algorithm.name=dpo"},
    {"eval_steps=0", "write 'eval.every_steps: 0'", "algorithm.name=sft"},
    {"eval_strategy=epoch", "there is none by a loss on held-out data", "algorithm.name=rm"},
    {"eval_steps=50", "50 has no counterpart: eval_strategy is no", "eval_strategy=no"},
    {"per_device_eval_batch_size=8", "rollout.max_concurrent says how many sequences are generated"},
    {"reward_funcs=[f]", "such as {name: NAME, type: python, path: FILE.py, function: NAME}, one for each"},
    {"logging_steps=10", "every step is logged"},
    {"report_to=wandb", "here it is log.wandb: for wandb that is the name of a project"},
    {"run_name=a", "write 'run.name: a'"},
    {"output_dir=out", "write 'run.dir: out'"},
    {"max_steps=100", "write 'train.total_steps: 100'"},
    {"num_train_epochs=3", "for 3 that is 3 x lines of data.train / rollout.prompts_per_step"},
    {"warmup_ratio=0.1", "for 0.1 that is 0.1 x the optimizer steps of the run"},
    {"lr_scheduler_type=cosine", "write 'optim.actor.schedule: cosine'"},
    {"adam_beta2=0.95", "write 'optim.actor.betas: [0.9, 0.95]'"},
    {"max_grad_norm=1.0", "write 'optim.actor.max_grad_norm: 1.0'"},
    {"weight_decay=0.01", "write 'optim.actor.weight_decay: 0.01'"},
    {"bf16=true", "write 'model.dtype: bf16'"},
    {"fp16=true", "there is no fp16; bf16 is"},
    {"gradient_checkpointing=True", "write 'train.recompute: true'"},
    {"gradient_checkpointing_kwargs.use_reentrant=false", "train.recompute is all that there is to say"},
    {"seed=42", "write 'train.seed: 42'"},
    {"dataset_name=openai/gsm8k", "write 'data.train: openai/gsm8k'"},
    {"dataset_train_split=train", "a path names the files of a split"},
    {"dataset_num_proc=8", "data are streamed"},
    {"dataloader_num_workers=4", "data are streamed"},
    {"packing=true", "sequences are always packed without padding"},
    {"padding_free=true", "sequences are always packed without padding"},
    {"max_length=2048", "tokens of the prompt alone"},
    {"assistant_only_loss=true", "write 'data.learn: assistant'"},
    {"completion_only_loss=false", "write 'data.learn: all'"},
    {"chat_template_kwargs.enable_thinking=false", "write 'data.template: {enable_thinking: false}'"},
    {"label_smoothing_factor=0.1", "targets are not smoothed"},
    {"remove_unused_columns=false", "a reward function gets all columns"},
    {"ddp_find_unused_parameters=false", "gradients of ranks are summed in one way"},
    {"deepspeed=ds.json", "write 'parallel: {zero: 3}'"},
    {"fsdp=full_shard", "write 'parallel: {zero: 3}'"},
    {"use_peft=true", "write 'lora.rank: 16' and 'lora.alpha: 32' and 'lora.dropout: 0.05', TRL's default"},
    {"use_peft=true", "write 'lora.alpha: 32' and 'lora.dropout: 0.05', TRL's default", "lora_r=8"},
    {"use_peft=false", "false has no counterpart: all weights train"},
    {"lora_r=16", "write 'lora.rank: 16'"},
    {"lora_target_modules=[q_proj]", "write 'lora.targets: [q_proj]'"},
    {"load_in_4bit=true", "weights are not quantized"},
    {"use_liger_kernel=true", "kernels are those of the program"},
    {"push_to_hub=true", "nothing is sent anywhere"},
    {"metric_for_best_model=reward", "here it is checkpoint.keep_best"},
    {"use_cpu=true", "write 'device: cpu'"},
    {"disable_tqdm=true", "write 'log.console: false'"},
    {"missing_eos_penalty=1.0", "write 'reward_total.missing_eos_penalty: 1.0'"},
    {"total_episodes=1024", "write 'train.total_episodes: 1024'"},
    {"num_mini_batches=4", "write 'train.minibatches: 4'"},
};
constexpr Answer kVerl[] = {
    {"trainer.n_gpus_per_node=8", "for 8 that is cluster={gpu: h100-80g, nodes: 1, gpus_per_node: 8}, with the name of your device, and parallel={dp: 8} or plan.auto=true"},
    {"trainer.nnodes=2", "nodes: 2, gpus_per_node: 4}", "trainer.n_gpus_per_node=4"},
    {"trainer.nnodes=1", "1 has no counterpart: a run is one process", "trainer.n_gpus_per_node=1"},
    {"trainer.total_epochs=15", "15 x lines of data.train"},
    {"trainer.total_training_steps=300", "write 'train.total_steps: 300'"},
    {"trainer.save_freq=-1", "write 'checkpoint.every_steps: 0'"},
    {"trainer.test_freq=5", "write 'eval.every_steps: 5'"},
    {"trainer.val_before_train=True", "write 'eval.at_start: true'"},
    {"trainer.logger=['console', 'wandb']", "here it is log.wandb"},
    {"trainer.experiment_name=a", "write 'run.name: a'"},
    {"trainer.critic_warmup=10", "write 'critic.warmup_steps: 10'"},
    {"trainer.default_local_dir=ckpt", "write 'checkpoint.dir: ckpt'"},
    {"trainer.resume_mode=resume_path", "for resume_path that is the path itself"},
    {"trainer.resume_mode=disable", "write 'checkpoint.resume: none'"},
    {"trainer.balance_batch=True", "ranks get about as many tokens each"},
    {"trainer.default_hdfs_dir=null", "files are written to folders of this machine"},
    {"trainer.rollout_data_dir=out", "write 'rollout.record: true'"},
    {"ray_kwargs.ray_init.num_cpus=8", "ranks are started by 'braid train' itself"},
    {"data.train_files=train.parquet", "write 'data.train: train.parquet'"},
    {"data.train_files=['a.parquet', 'b.parquet']", "file (JSON lines, parquet, Arrow, CSV), folder, pattern"},
    {"data.val_files=test.parquet", "write 'data.eval: test.parquet'"},
    {"data.train_batch_size=1024", "write 'rollout.prompts_per_step: 1024'"},
    {"data.gen_batch_size=1536", "a draw has as many prompts as a step learns from (rollout.prompts_per_step"},
    {"data.max_response_length=1024", "write 'rollout.max_response_length: 1024'"},
    {"data.truncation=left", "write 'data.overlong: truncate_left'"},
    {"data.truncation=right", "right has no counterpart: a prompt is cut at its begin"},
    {"data.filter_overlong_prompts=True", "write 'data.overlong: drop'"},
    {"data.image_key=images", "pictures are not read"},
    {"data.reward_fn_key=data_source", "a reward function gets all columns"},
    {"algorithm.adv_estimator=gae", "write 'algorithm.name: ppo'"},
    {"algorithm.adv_estimator=rloo", "write 'algorithm.name: rloo'"},
    {"algorithm.adv_estimator=opo", "opo has no counterpart: advantages may be of your own (algorithm.advantages"},
    {"algorithm.adv_estimator=reinforce_plus_plus", "write 'algorithm.name: reinforce_plus_plus'"},
    {"algorithm.adv_estimator=grpo_vectorized", "write 'algorithm.name: grpo'"},
    {"algorithm.adv_estimator=mine", "there is no estimator 'mine'; algorithm.name may be ppo, grpo, dapo"},
    {"algorithm.norm_adv_by_std_in_grpo=False", "write 'algorithm.normalize_advantages: none'"},
    {"algorithm.use_kl_in_reward=True", "write 'algorithm.kl.in: reward'"},
    {"algorithm.kl_penalty=low_var_kl", "write 'algorithm.kl.estimator: k3'"},
    {"algorithm.kl_ctrl.type=adaptive", "write 'algorithm.kl.controller: adaptive'"},
    {"algorithm.kl_ctrl.kl_coef=0.001", "write 'algorithm.kl.coef: 0.001'"},
    {"algorithm.filter_groups.enable=True", "write 'algorithm.dynamic_sampling: true'"},
    {"algorithm.filter_groups.max_num_gen_batches=20", "write 'algorithm.max_draws: 20'"},
    {"algorithm.filter_groups.metric=acc", "a group has a signal where two of its rewards differ"},
    {"algorithm.rollout_is=token", "here it is algorithm.tis_cap"},
    {"algorithm.rollout_is_threshold=2.0", "write 'algorithm.tis_cap: 2.0'"},
    {"algorithm.rollout_correction.rollout_rs=token", "of such corrections there are two"},
    {"actor_rollout_ref.model.path=m", "write 'model.path: m'"},
    {"actor_rollout_ref.model.use_remove_padding=True", "sequences are always packed"},
    {"actor_rollout_ref.model.enable_gradient_checkpointing=True", "write 'train.recompute: true'"},
    {"actor_rollout_ref.model.lora_rank=32", "write 'lora.rank: 32'"},
    {"actor_rollout_ref.actor.optim.lr=1e-6", "write 'optim.actor.lr: 1e-6'"},
    {"actor_rollout_ref.actor.optim.lr_warmup_steps=10", "write 'optim.actor.warmup_steps: 10'"},
    {"actor_rollout_ref.actor.ppo_mini_batch_size=64", "write 'train.minibatches: 1', the nearest number that divides the 4 sequences of a rollout", "rollout.prompts_per_step=4"},
    {"actor_rollout_ref.actor.ppo_mini_batch_size=256", "write 'train.minibatches: 4'", "data.train_batch_size=1024"},
    {"actor_rollout_ref.actor.ppo_mini_batch_size=300", "write 'train.minibatches: 4', the nearest number", "data.train_batch_size=1024"},
    {"actor_rollout_ref.actor.ppo_mini_batch_size=64", "for 64 that is rollout.prompts_per_step / 64"},
    {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8", "for 8 that is 8 x (data.max_prompt_length + rollout.max_response_length)"},
    {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8", "write 'train.micro_tokens: 8192'", "data.max_response_length=512 data.max_prompt_length=512"},
    {"actor_rollout_ref.actor.use_dynamic_bsz=True", "micro-batches are always cut by tokens"},
    {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384", "write 'train.micro_tokens: 16384'"},
    {"actor_rollout_ref.actor.use_kl_loss=True", "write 'algorithm.kl.in: loss'"},
    {"actor_rollout_ref.actor.kl_loss_coef=0.001", "write 'algorithm.kl.coef: 0.001'"},
    {"actor_rollout_ref.actor.entropy_coeff=0", "write 'algorithm.entropy_coef: 0'"},
    {"actor_rollout_ref.actor.clip_ratio_high=0.28", "write 'algorithm.clip_high: 0.28'"},
    {"actor_rollout_ref.actor.clip_ratio_c=10.0", "write 'algorithm.dual_clip: 10.0'"},
    {"actor_rollout_ref.actor.loss_agg_mode=token-mean", "write 'algorithm.loss_agg: token_mean'"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=vanilla", "vanilla has no counterpart: the clipped loss"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "write 'algorithm.name: gspo'"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean", "geo_mean has no counterpart: a loss of tokens may be one of your own"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=rloo", "write 'algorithm.name: rloo'"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov", "clip_cov has no counterpart: a loss of tokens may be one of your own"},
    {"actor_rollout_ref.actor.policy_loss.clip_cov_ratio=0.1", "keys of a loss are those of algorithm"},
    {"actor_rollout_ref.actor.strategy=fsdp2", "there is one engine for training"},
    {"actor_rollout_ref.actor.fsdp_config.param_offload=True", "here it is train.offload"},
    {"actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", "'optimizer: host' of a role in a plan file"},
    {"actor_rollout_ref.actor.fsdp_config.fsdp_size=8", "write 'parallel: {zero: 3, zero_ranks: 8}'"},
    {"actor_rollout_ref.actor.fsdp_config.fsdp_size=-1", "all data-parallel ranks share"},
    {"actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "sequences are not cut over ranks"},
    {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4", "write 'parallel: {update_actor: {tp: 4}}'"},
    {"actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=2", "write 'parallel: {ref_logprob: {pp: 2}}'"},
    {"critic.megatron.tensor_model_parallel_size=4", "write 'parallel: {update_critic: {tp: 4}}'"},
    {"actor_rollout_ref.rollout.name=vllm", "sampler and trainer are one engine"},
    {"actor_rollout_ref.rollout.tensor_model_parallel_size=2", "write 'parallel: {generate: {tp: 2}}'"},
    {"actor_rollout_ref.rollout.gpu_memory_utilization=0.6", "here it is rollout.kv_budget_tokens"},
    {"actor_rollout_ref.rollout.n=5", "write 'rollout.samples_per_prompt: 5'"},
    {"actor_rollout_ref.rollout.multi_turn.enable=True", "a response is one turn"},
    {"actor_rollout_ref.rollout.max_num_batched_tokens=8192", "is chosen by the engine"},
    {"actor_rollout_ref.rollout.enable_chunked_prefill=True", "prompts are always computed in parts"},
    {"actor_rollout_ref.rollout.enforce_eager=True", "there are no captured graphs"},
    {"actor_rollout_ref.rollout.free_cache_engine=True", "the cache is freed after every rollout"},
    {"actor_rollout_ref.rollout.val_kwargs.temperature=0", "write 'eval.temperature: 0'"},
    {"actor_rollout_ref.rollout.val_kwargs.top_p=0.7", "evaluations draw from the whole distribution"},
    {"critic.optim.lr=1e-5", "write 'optim.critic.lr: 1e-5'"},
    {"critic.model.path=m", "write 'critic.path: m'"},
    {"critic.cliprange_value=0.5", "write 'algorithm.value_clip: 0.5'"},
    {"reward_model.enable=True", "for True that is reward: [{type: model, path: FOLDER}]"},
    {"reward_model.enable=False", "False has no counterpart"},
    {"reward_model.model.path=m", "write 'reward: [{type: model, path: m}]'"},
    {"reward_model.model.input_tokenizer=null", "whose tokenizer is not the policy's gets texts by itself"},
    {"reward_model.reward_manager=dapo", "'signature' of the entry of type python"},
    {"reward_model.overlong_buffer.enable=True", "a number of tokens above 0"},
    {"reward_model.overlong_buffer.enable=False", "write 'reward_total.overlong_buffer: 0'"},
    {"reward_model.overlong_buffer.len=64", "write 'reward_total.overlong_buffer: 64'"},
    {"custom_reward_function.path=r.py", "function: compute_score}]'"},
    {"custom_reward_function.path=r.py", "write 'reward: [{type: python, path: r.py, function: score}]'", "custom_reward_function.name=score"},
};
constexpr Answer kVerlOfTwoKeys[] = {
    {"actor_rollout_ref.actor.use_kl_loss=False", "write 'algorithm.kl.coef: 0'"},
    {"actor_rollout_ref.actor.use_kl_loss=False", "use_kl_in_reward says reward", "algorithm.use_kl_in_reward=True"},
    {"algorithm.use_kl_in_reward=False", "write 'algorithm.kl.coef: 0'"},
    {"algorithm.use_kl_in_reward=False", "use_kl_loss says loss", "actor_rollout_ref.actor.use_kl_loss=True"},
    {"actor_rollout_ref.actor.kl_loss_coef=0.1", "use_kl_loss is off", "actor_rollout_ref.actor.use_kl_loss=False"},
    {"algorithm.kl_ctrl.kl_coef=0.1", "use_kl_in_reward is off", "algorithm.use_kl_in_reward=False"},
    {"actor_rollout_ref.actor.clip_ratio=0.3", "clip_ratio_low and clip_ratio_high are said", "actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.2"},
    {"algorithm.norm_adv_by_std_in_grpo=True", "advantages of gae are not divided by it", "algorithm.adv_estimator=gae"},
    {"actor_rollout_ref.actor.policy_loss.loss_mode=gspo", "write 'algorithm.ratio_level: sequence'", "algorithm.adv_estimator=rloo"},
    {"algorithm.adv_estimator=grpo", "the loss gspo says algorithm.name", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo"},
    {"trainer.total_training_steps=null", "it is left to the epochs over the data (total_epochs)"},
    {"actor_rollout_ref.actor.optim.lr_warmup_steps=10", "write 'optim.actor.warmup_steps: 40'", "data.train_batch_size=1024 actor_rollout_ref.actor.ppo_mini_batch_size=256"},
    {"distillation.enabled=True", "write 'algorithm.name: distill'"},
    {"distillation.enabled=False", "adv_estimator says what is trained"},
    {"algorithm.adv_estimator=grpo", "distillation.enabled says algorithm.name: distill", "distillation.enabled=True"},
    {"distillation.teacher_models.teacher_model.model_path=big", "write 'teacher.path: big'"},
    {"distillation.teacher_models.teacher_model.inference.temperature=0.5", "there is one teacher (teacher.path)"},
    {"distillation.distillation_loss.loss_mode=k1", "it is the divergence that distill has"},
    {"distillation.distillation_loss.use_policy_gradient=False", "distill has the divergence as a reward of tokens"},
    {"distillation.distillation_loss.use_task_rewards=True", "distill learns from the teacher alone"},
    {"distillation.teacher_key=data_source", "there is one teacher (teacher.path)"},
    {"reward.num_workers=8", "'workers' of an entry of type python or command"},
    {"reward.reward_model.model_path=m", "write 'reward: [{type: model, path: m}]'"},
    {"reward.reward_model.enable=True", "the entry has its path from reward_model.model_path", "reward.reward_model.model_path=m"},
    {"reward.reward_model.rollout.prompt_length=2048", "a reward model scores responses by one forward"},
    {"reward.reward_manager.source=register", "a manager class does not fit"},
    {"reward.sandbox_fusion.url=http://x", "an entry of type http or command"},
    {"actor_rollout_ref.actor.profiler.save_path=p", "times of a step's phases are always logged"},
    {"actor_rollout_ref.actor.qat.group_size=16", "weights are not quantized"},
    {"actor_rollout_ref.rollout.ignore_eos=True", "write 'rollout.ignore_eos: true'"},
    {"actor_rollout_ref.rollout.val_kwargs.do_sample=False", "write 'eval.temperature: 0'"},
};
constexpr Answer kOpenRlhf[] = {
    {"algo.dynamic_filtering_range=[0, 1]", "a group has a signal where two of its rewards differ"},
    {"algo.advantage.no_std_norm=true", "write 'algorithm.normalize_advantages: none'"},
    {"algo.advantage.is_correction_threshold=[0.5, 5.0]", "write 'algorithm.tis_cap: 5', weights have no lower bound"},
    {"algo.advantage.is_correction_enable=true", "write 'algorithm.tis_cap: 5'"},
    {"algo.kl.target=6", "write 'algorithm.kl.controller: adaptive' and 'algorithm.kl.target: 6'"},
    {"actor.eps_clip_low_high=[0.2, 0.28]", "write 'algorithm.clip_low: 0.2' and 'algorithm.clip_high: 0.28'"},
    {"actor.adam.lr=1e-6", "write 'optim.actor.lr: 1e-6'"},
    {"critic.adam.betas=[0.9, 0.95]", "write 'optim.critic.betas: [0.9, 0.95]'"},
    {"critic.freezing_steps=10", "write 'critic.warmup_steps: 10'"},
    {"ckpt.load_enable=true", "write 'checkpoint.resume: auto'"},
    {"ckpt.max_num=3", "write 'checkpoint.keep_last: 3'"},
    {"train.dynamic_batch_enable=true", "micro-batches are always cut by tokens"},
    {"train.async_enable=true", "here it is plan.staleness (1 = rollouts are one step older"},
    {"reward.stop_properly_penalty_coef=0.5", "reward_total.missing_eos_penalty is subtracted"},
    {"--pretrain=m", "write 'model.path: m'"},
    {"--reward_pretrain=m", "write 'reward: [{type: model, path: m}]'"},
    {"--remote_rm_url=http://x", "write 'reward: [{type: http, url: \"http://x\"}]'"},
    {"--remote_rm_url=reward_func.py", "that is an entry of type python, with a function in TRL's form around yours"},
    {"--reward.remote_url=my/reward.py", "that is an entry of type python"},
    {"--micro_rollout_batch_size=16", "other forwards are cut by tokens"},
    {"--rollout.micro_batch_size=16", "other forwards are cut by tokens"},
    {"--critic.num_nodes=1", "here it is placement (devices of a role, as {critic: 8-15})"},
    {"--ref_num_nodes=1", "1 has no counterpart: colocate_all_models gives all roles the same devices", "colocate_all_models=true"},
    {"--reward.num_gpus_per_node=8", "8 has no counterpart: colocate_all gives all roles", "train.colocate_all=true"},
    {"--prompt_data=d.jsonl", "write 'data.train: d.jsonl'"},
    {"--input_key=q", "write 'data.prompt_key: q'"},
    {"--apply_chat_template=true", "write 'data.prompt_format: chat'"},
    {"--rollout_batch_size=1024", "write 'rollout.prompts_per_step: 1024'"},
    {"--train_batch_size=128", "write 'train.minibatches: 64'", "rollout_batch_size=1024 n_samples_per_prompt=8"},
    {"--train_batch_size=1000", "write 'train.minibatches: 8', the nearest number", "rollout_batch_size=1024 n_samples_per_prompt=8"},
    {"--micro_train_batch_size=8", "here it is train.micro_tokens"},
    {"--n_samples_per_prompt=8", "write 'rollout.samples_per_prompt: 8'"},
    {"--generate_max_len=1024", "write 'rollout.max_response_length: 1024'"},
    {"--prompt_max_len=1024", "write 'data.max_prompt_length: 1024'"},
    {"--advantage_estimator=group_norm", "write 'algorithm.name: grpo'"},
    {"--advantage_estimator=reinforce", "write 'algorithm.name: reinforce_plus_plus'"},
    {"--advantage_estimator=reinforce_baseline", "write 'algorithm.name: reinforce_plus_plus_baseline'"},
    {"--actor.policy_loss_type=gspo", "write 'algorithm.name: gspo'"},
    {"--actor.policy_loss_type=ppo", "ppo has no counterpart: the clipped loss is the one that there is"},
    {"--advantage_estimator=dr_grpo", "write 'algorithm.name: dr_grpo'"},
    {"--init_kl_coef=0.01", "write 'algorithm.kl.coef: 0.01'"},
    {"--kl_estimator=k3", "write 'algorithm.kl.estimator: k3'"},
    {"--eps_clip_low_high=[0.2, 0.28]", "write 'algorithm.clip_low: 0.2' and 'algorithm.clip_high: 0.28'"},
    {"--actor_learning_rate=5e-7", "write 'optim.actor.lr: 5e-7'"},
    {"--critic_learning_rate=9e-6", "write 'optim.critic.lr: 9e-6'"},
    {"--zero_stage=3", "write 'parallel: {zero: 3}'"},
    {"--zero_stage=0", "0 has no counterpart: nothing is sharded"},
    {"--adam_offload=true", "'optimizer: host' of a role in a plan file"},
    {"--colocate_all_models=true", "write 'placement: colocated'"},
    {"--vllm_num_engines=4", "write 'parallel: {generate: {dp: 4}}'"},
    {"--vllm_enable_sleep=true", "models that rest leave memory by train.offload"},
    {"--actor_num_gpus_per_node=8", "nodes: 2, gpus_per_node: 8}", "actor_num_nodes=2"},
    {"--ref_num_nodes=1", "here it is placement"},
    {"--ring_attn_size=2", "cp can be planned, not trained yet"},
    {"--ds_tensor_parallel_size=2", "here it is parallel (tp of the call that trains)"},
    {"--dynamic_filtering=true", "write 'algorithm.dynamic_sampling: true'"},
    {"--normalize_reward=true", "rewards are not normalised over the run"},
    {"--reward_clip_range=[-10, 10]", "write 'reward_total.clip: 10'"},
    {"--save_steps=-1", "write 'checkpoint.every_steps: 0'"},
    {"--ckpt_path=c", "write 'checkpoint.dir: c'"},
    {"--load_checkpoint=true", "write 'checkpoint.resume: auto'"},
    {"--max_ckpt_num=3", "write 'checkpoint.keep_last: 3'"},
    {"--use_wandb=key", "here it is log.wandb"},
    {"--flash_attn=true", "there is one attention kernel"},
    {"--packing_samples=true", "sequences are always packed"},
    {"--freezing_actor_steps=-1", "write 'critic.warmup_steps: 0'"},
    {"--async_train=true", "here it is plan.staleness (1 = rollouts are one step older"},
    {"--agent_func_path=a.py", "a response is one turn"},
};
// clang-format on

// The other keys stand behind the one that is asked for: the first unknown key is answered.
std::vector<std::string> overrides_of(const Answer& answer) {
  std::vector<std::string> out;
  std::string key = answer.key;
  if (key.rfind("--", 0) == 0) key = key.substr(2);
  out.push_back(key);
  for (const std::string& other : split(answer.beside, ' '))
    if (!other.empty()) out.push_back(other);
  return out;
}

// What the message says to write, as overrides.
std::vector<std::string> advised(const std::string& message) {
  const std::regex quoted("(?:write|and) '([a-z_.]+): ([^']*)'");
  std::vector<std::string> out;
  for (std::sregex_iterator it(message.begin(), message.end(), quoted), end; it != end; ++it)
    out.push_back(cat((*it)[1].str(), "=", (*it)[2].str()));
  return out;
}

class ForeignKeyAnswers : public testing::TestWithParam<Answer> {};

TEST_P(ForeignKeyAnswers, AreWhatBraidDoes) {
  const Status status = load_overrides(overrides_of(GetParam()));
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_THAT(status.message(), HasSubstr("is a key of "));
  EXPECT_THAT(status.message(), HasSubstr(GetParam().says));
  // What is advised can be written.
  std::vector<std::string> lines = advised(status.message());
  if (status.message().find(" write '") != std::string::npos) {
    EXPECT_FALSE(lines.empty()) << status.message();
  }
  for (const char* needed : {"rollout.samples_per_prompt=2", "rollout.max_response_length=128",
                             "data.eval=task:sort_digits", "reward=[{type: rule, rule: exact}]"})
    lines.insert(lines.begin(), needed);
  std::erase_if(lines, [](const std::string& line) { return line == "rollout.temperature=0"; });
  EXPECT_EQ(load_overrides(lines).message(), "") << join(lines, " ");
}

INSTANTIATE_TEST_SUITE_P(Trl, ForeignKeyAnswers, testing::ValuesIn(kTrl));
INSTANTIATE_TEST_SUITE_P(Verl, ForeignKeyAnswers, testing::ValuesIn(kVerl));
INSTANTIATE_TEST_SUITE_P(VerlOfTwoKeys, ForeignKeyAnswers, testing::ValuesIn(kVerlOfTwoKeys));
INSTANTIATE_TEST_SUITE_P(OpenRlhf, ForeignKeyAnswers, testing::ValuesIn(kOpenRlhf));

// Advice on algorithms gives the names that there are, however many.
TEST(ForeignKeys, EstimatorsBecomeAlgorithmsThatExist) {
  const auto text = [](const std::string& value, const std::vector<std::string>& names) {
    YamlNode root;
    EXPECT_TRUE(set_yaml_path(root, "adv_estimator", value, "a").ok());
    return foreign_key_text(*root.find("adv_estimator"), "adv_estimator", root, names);
  };
  const std::vector<std::string> few = {"ppo", "grpo"};
  const std::vector<std::string> many = {"ppo", "grpo", "rloo", "reinforce_plus_plus", "dr_grpo"};
  EXPECT_THAT(text("rloo", few), HasSubstr("algorithm.name may be ppo, grpo"));
  EXPECT_THAT(text("rloo", many), HasSubstr("write 'algorithm.name: rloo'"));
  EXPECT_THAT(text("reinforce", many), HasSubstr("write 'algorithm.name: reinforce_plus_plus'"));
  EXPECT_THAT(text("dr_grpo", many), HasSubstr("write 'algorithm.name: dr_grpo'"));
  EXPECT_THAT(text("dr_grpo", few), HasSubstr("there is no estimator 'dr_grpo'"));
}

// What other frameworks and papers call an algorithm leads to what it is here.
TEST(ForeignNames, AreAnsweredByAlgorithmName) {
  const auto error = [](const std::string& name) {
    AlgorithmOptions options;
    options.name = name;
    return make_graph(options).status().message();
  };
  for (const auto& [name, hint] : std::initializer_list<std::pair<const char*, const char*>>{
           {"ipo", "'; write 'algorithm.name: dpo' and 'algorithm.preference_loss: ipo'; known: "},
           {"Dr.GRPO", "'; write 'algorithm.name: dr_grpo'; "},
           {"reinforce++", "'; write 'algorithm.name: reinforce_plus_plus'; "},
           {"reinforce++-baseline", "'; write 'algorithm.name: reinforce_plus_plus_baseline'; "},
           {"gae", "'; write 'algorithm.name: ppo'; "},
           {"gkd", "'; write 'algorithm.name: distill'; "},
           {"reward", "'; write 'algorithm.name: rm'; "},
           {"simpo", "', which has no counterpart: of losses of preferences without a reference"},
           {"vapo", "', which has no counterpart: of algorithms with a critic there is ppo"},
           {"sapo", "', which has no counterpart: a loss of tokens may be one of your own"},
           {"remix", "' (did you mean 'remax'?); known: "},
           {"something_else", "'; known: "}})
    EXPECT_THAT(error(name), HasSubstr(cat("unknown algorithm '", name, hint)));
}

// Every line that a name is answered with can be written.
TEST(ForeignNames, AreAnsweredByWhatCanBeWritten) {
  for (const char* name : {"bnpo", "cdpo", "robust_dpo", "slic", "minillm", "GRPO"}) {
    const std::string hint = algorithm_hint(name, algorithm_names());
    std::vector<std::string> lines = advised(hint);
    ASSERT_FALSE(lines.empty()) << hint;
    lines.push_back("rollout.samples_per_prompt=2");
    EXPECT_EQ(load_overrides(lines).message(), "") << hint;
  }
}

}  // namespace
}  // namespace braid::inline dataflow

#!/bin/bash
set -x
ACTOR=/models/Qwen2.5-7B-Instruct
CRITIC=Qwen/Qwen2.5-7B-Instruct
NODES=2
python3 -m verl.trainer.main_ppo --config-name ppo_trainer \
    algorithm.adv_estimator=gae algorithm.use_kl_in_reward=True \
    data.train_files="['/data/gsm8k/train.parquet','/data/math/train.parquet']" \
    data.train_batch_size=1024 data.max_prompt_length=1024 data.max_response_length=512 data.truncation='error' \
    actor_rollout_ref.model.path=$ACTOR actor_rollout_ref.model.enable_gradient_checkpointing=True \
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=256 actor_rollout_ref.actor.ppo_epochs=2 \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 \
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \
    actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.tensor_model_parallel_size=4 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 actor_rollout_ref.rollout.max_num_seqs=256 \
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=48000 \
    actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=48000 actor_rollout_ref.ref.fsdp_config.param_offload=True \
    critic.model.path=$CRITIC critic.use_dynamic_bsz=True critic.ppo_max_token_len_per_gpu=98304 \
    critic.forward_max_token_len_per_gpu=98304 critic.model.fsdp_config.optimizer_offload=True \
    reward_model.enable=True reward_model.model.path=llama2-7b reward_model.micro_batch_size_per_gpu=32 \
    reward_model.model.fsdp_config.param_offload=True \
    trainer.critic_warmup=0 trainer.logger="['console','wandb']" trainer.n_gpus_per_node=8 trainer.nnodes=$NODES "$@"

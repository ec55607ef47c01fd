#!/usr/bin/env bash
# A launch script for OpenRLHF (not for Braid): PPO of Llama 3 8B with a critic and a reward model on one node of eight GPUs, all
# models on all of them. docs/from_openrlhf.md prices it:
#   braid plan --import openrlhf examples/plans/openrlhf_ppo_8b.sh --gpu h100-80g
set -euo pipefail

python3 -m openrlhf.cli.train_ppo_ray \
  --pretrain meta-llama/Meta-Llama-3-8B-Instruct \
  --reward_pretrain my/llama3-8b-rm \
  --prompt_data data/prompts.jsonl \
  --input_key context_messages \
  --apply_chat_template \
  --prompt_max_len 1024 \
  --generate_max_len 1024 \
  --rollout_batch_size 1024 \
  --n_samples_per_prompt 1 \
  --train_batch_size 128 \
  --micro_train_batch_size 8 \
  --micro_rollout_batch_size 16 \
  --max_epochs 1 \
  --num_episodes 1 \
  --advantage_estimator gae \
  --init_kl_coef 0.01 \
  --actor_learning_rate 5e-7 \
  --critic_learning_rate 9e-6 \
  --zero_stage 3 \
  --bf16 \
  --gradient_checkpointing \
  --colocate_all_models \
  --actor_num_nodes 1 --actor_num_gpus_per_node 8 \
  --critic_num_nodes 1 --critic_num_gpus_per_node 8 \
  --ref_num_nodes 1 --ref_num_gpus_per_node 8 \
  --reward_num_nodes 1 --reward_num_gpus_per_node 8 \
  --vllm_num_engines 4 \
  --vllm_tensor_parallel_size 2 \
  --vllm_gpu_memory_utilization 0.5 \
  --vllm_enable_sleep \
  --deepspeed_enable_sleep \
  --save_path checkpoint/llama3-8b-rlhf \
  "$@"

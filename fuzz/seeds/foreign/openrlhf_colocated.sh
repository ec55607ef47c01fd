set -x
export RAY_ADDRESS=auto
SFT="OpenRLHF/Llama-3-8b-sft-mixture"
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"working_dir": "/openrlhf"}' -- \
  python3 -m openrlhf.cli.train_ppo_ray \
  --ref_num_nodes 1 --ref_num_gpus_per_node 8 --reward_num_nodes 1 --reward_num_gpus_per_node 8 \
  --critic_num_nodes 1 --critic_num_gpus_per_node 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 \
  --vllm_num_engines 4 --vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.6 \
  --colocate_all_models --vllm_enable_sleep --deepspeed_enable_sleep --init_kl_coef 1e-3 --gamma 1.0 \
  --pretrain llama3-8b --reward_pretrain llama3-8b --critic_pretrain $SFT \
  --micro_train_batch_size 8 --train_batch_size 128 --micro_rollout_batch_size 32 --rollout_batch_size 128 \
  --n_samples_per_prompt 8 --max_epochs 1 --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 3 --bf16 \
  --advantage_estimator reinforce_baseline --gradient_checkpointing --packing_samples --ring_attn_size 2

A='x A=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy z'
$A
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 actor_rollout_ref.model.path=llama2-13b

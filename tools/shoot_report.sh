#!/usr/bin/env bash
# Writes docs/report.png: the page of a PPO run on two ranks with two rewards and an evaluation, priced by a profile of this machine.
# Wants an idle machine (the page shows predicted beside measured times) and Chromium. Usage: shoot_report.sh path/to/braid OUT.png
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
model=examples/quickstart/model
"$1" profile $model --ranks 2 --out "$folder/machine.json"
"$1" train examples/algorithms/toy.yaml algorithm.name=ppo run.dir="$folder" run.name=ppo train.total_steps=40 train.threads=1 \
  "cluster={profile: $folder/machine.json, nodes: 1, gpus_per_node: 2}" 'parallel={dp: 2}' \
  'reward=[{name: digits, type: rule, rule: digit_share}, {name: exact, type: rule, rule: exact, weight: 0.5}]' \
  rollout.prompts_per_step=32 data.max_prompt_length=64 optim.critic.lr=1e-3 algorithm.kl.coef=0.02 \
  data.eval=task:sort_digits eval.prompts=32 eval.every_steps=5 eval.at_start=true
python3 tools/look_at_report.py "$folder/ppo/report.html" --shot "$2" --width 1280 --height 5200

#!/usr/bin/env bash
# Every kind of work once on a device, small: training from random weights, a reward model, PPO, GRPO with adapters, 16-bit weights, continuing,
# evaluation and export, and two ranks where there are two GPUs. Numbers of the device are held against those of the CPU, and the bits of a run
# against those of the same run again. Braid must be built with a libtorch that knows the device. Usage: gpu_smoke.sh path/to/braid [DEVICE, cuda
# if left out]
set -euo pipefail
cd "$(dirname "$0")/.."
braid=$(realpath "$1")
device=${2:-cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=examples/quickstart/model
common=(run.dir="$work" tokenizer.path=$model data.train=task:sort_digits log.tensorboard=false log.console=false train.total_steps=3)

train() {  # NAME DEVICE KEY=VALUE...
  local name=$1 on=$2
  shift 2
  "$braid" train run.name="$name" device="$on" "${common[@]}" "$@" > "$work/$name.log" 2>&1 || { tail -n 20 "$work/$name.log" >&2; exit 1; }
  echo "ok: $name on $on"
}

# A key of the first row of two runs' metrics, apart by at most a share of 1e-3.
same() {
  python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" "$3" <<'PY'
import json, math, sys
one, other = (json.loads(open(path).read().splitlines()[0])[sys.argv[3]] for path in sys.argv[1:3])
if not (math.isfinite(one) and abs(one - other) <= 1e-3 * max(abs(one), abs(other), 1e-6)):
    sys.exit(f"{sys.argv[3]} of the first step: {one} on the device, {other} on the CPU")
PY
  echo "ok: $3 agrees with the CPU"
}

sft=(algorithm.name=sft model.config=$model/config.json rollout.prompts_per_step=16 optim.actor.lr=1e-3)
train sft "$device" "${sft[@]}"
train sft-cpu cpu "${sft[@]}"
same sft sft-cpu sft/loss
train rm "$device" algorithm.name=rm model.path="$work/sft/export/actor" rollout.prompts_per_step=16
rl=(model.path="$work/sft/export/actor" rollout.prompts_per_step=8 rollout.max_response_length=8)
train ppo "$device" algorithm.name=ppo "${rl[@]}" "reward=[{type: model, path: $work/rm/export/reward}]" checkpoint.every_steps=1
train ppo "$device" algorithm.name=ppo "${rl[@]}" "reward=[{type: model, path: $work/rm/export/reward}]" checkpoint.resume=auto train.total_steps=4
rule='reward=[{type: rule, rule: digit_share}]'
train grpo-lora "$device" algorithm.name=grpo "${rl[@]}" "$rule" rollout.samples_per_prompt=4 lora.rank=4
for name in grpo-bf16 grpo-again; do
  train $name "$device" algorithm.name=grpo "${rl[@]}" "$rule" rollout.samples_per_prompt=4 model.dtype=bf16
done
cmp "$work"/grpo-{bf16,again}/export/actor/model.safetensors
echo "ok: one seed gives the same bits again"
if [[ $device == cpu ]] || (($(nvidia-smi --list-gpus 2> /dev/null | wc -l) >= 2)); then  # a rank on each of two
  train two-ranks "$device" algorithm.name=grpo "${rl[@]}" "$rule" rollout.samples_per_prompt=4 placement=colocated \
    "cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 2}"
fi
"$braid" eval model.path="$work/ppo/export/actor" device="$device" tokenizer.path=$model data.eval=task:sort_digits rollout.max_response_length=8 "$rule" > "$work/eval.log"
echo "ok: eval on $device"
echo "all of it ran on $device"

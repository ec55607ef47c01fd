#!/usr/bin/env bash
# Several ranks on one device: the same job in one process and in two and four ranks of several layouts, over the library that the build
# communicates with (NCCL) and through host memory (Gloo). Their rewards, losses and gradients are held against those of one process. Where
# ranks are more than GPUs they share them: that tries the communication and says nothing of speed. Then a rank is killed and a rank is
# stopped: each job must end by itself and name it.
# Usage: gpu_ranks.sh path/to/braid [DEVICE, cuda if left out]; BRAID_OVER=nccl or gloo: only that one; BRAID_ONLY=PATTERN: only jobs of
# such names
set -euo pipefail
cd "$(dirname "$0")/.."
braid=$(realpath "$1")
device=${2:-cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=examples/quickstart/model
limit=${BRAID_JOB_LIMIT_S:-90}
export BRAID_SHARE_GPU=1 OMP_NUM_THREADS=1
if [[ $device != cpu ]]; then export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_IB_DISABLE=${NCCL_IB_DISABLE:-1}; fi

job() {  # NAME ALGORITHM KEY=VALUE...
  local name=$1 algorithm=$2
  shift 2
  local rewards=(reward='[{type: rule, rule: digit_share}]')
  timeout "$limit" "$braid" train run.name="$name" run.dir="$work" device="$device" algorithm.name="$algorithm" model.config=$model/config.json \
    tokenizer.path=$model data.train=task:sort_digits rollout.prompts_per_step=8 rollout.max_response_length=24 "${rewards[@]}" \
    optim.actor.lr=1e-3 train.total_steps=3 train.minibatches=2 log.tensorboard=false log.console=false "$@" > "$work/$name.log" 2>&1
}

# Every number that both runs have and that is no time, apart by at most a share of 1e-3 or by 1e-5.
compare() {  # ONE OTHER
  python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" <<'PY'
import json, math, sys
one, other = ([json.loads(line) for line in open(path)] for path in sys.argv[1:3])
names = [name for name in one[0] if name.split("/")[0] in ("reward", "policy", "critic", "sft", "rollout", "value") and name in other[0]]
if len(one) != len(other) or len(names) < 5:
    sys.exit(f"{len(one)} and {len(other)} steps, {len(names)} numbers in common")
for step, (a, b) in enumerate(zip(one, other)):
    for name in names:
        x, y = a[name], b[name]
        if isinstance(x, (int, float)) and not (math.isfinite(x) and abs(x - y) <= max(1e-3 * abs(x), 1e-5)):
            sys.exit(f"step {step + 1}: {name} is {x} and {y}")
if "hand-over" in sys.argv[2] and not sum(row.get("rollout/migrated", 0) for row in other):
    sys.exit("no sample went to another replica")
print(f"{len(names)} numbers of {len(one)} steps agree")
PY
}

failed=0
try() {  # NAME BASE KEY=VALUE...
  local name=$1 base=$2 said
  shift 2
  [[ $name == ${BRAID_ONLY:-*} ]] || return 0
  if ! job "$name" "${base%%-*}" "$@"; then
    echo "FAILED: $name: $(grep -v '^ *$' "$work/$name.log" | tail -n 1 | cut -c1-300)"
    failed=1
  elif said=$(compare "$base" "$name" 2>&1); then
    echo "ok: $name: $said"
  else
    echo "DIFFERS: $name: $said"
    failed=1
  fi
}

scored='  generate: {mesh: all, dp: 2}\n  old_logprob: {mesh: all, dp: 2}\n  ref_logprob: {mesh: all, dp: 2}\n  values: {mesh: all, dp: 2}\n'
fused='  update_actor: {mesh: 0-1, pp: 2, micro_batches: 2}\n  update_critic: {mesh: "1,0", pp: 2, micro_batches: 2}\nfusion: {train_schedules: true}\n'
handed='  update_actor: {mesh: all, dp: 2}\n  update_critic: {mesh: all, dp: 2}\nfusion: {migrate_below_samples: 7, migrate_to_samples: 7}\n'
moved='  generate: {mesh: all, dp: 2, tp: 2}\n  old_logprob: {mesh: all, dp: 4}\n  ref_logprob: {mesh: 0-1, pp: 2}\n  values: {mesh: 2-3, dp: 2}\n'
moved+='  update_actor: {mesh: all, dp: 4, zero: 3}\n  update_critic: {mesh: all, dp: 2, pp: 2, micro_batches: 2}\n'

# A plan's file with the calls that are given, on one node.
plan() {  # NAME ALGORITHM DEVICES CALLS
  printf 'graph: %s\ndevices: 1x%s\ncalls:\n%b' "$2" "$3" "$4" > "$work/$1.yaml"
  echo "plan.file=$work/$1.yaml"
}

# A job of two ranks whose second rank gets a signal after its second step: it must end within the limit and name that rank.
ends() {  # NAME SIGNAL SAID
  local name=$1 pid rank
  [[ $name == ${BRAID_ONLY:-*} ]] || return 0
  job "$name" grpo rollout.samples_per_prompt=4 placement=colocated "$two" 'parallel={dp: 2}' train.total_steps=100000 runtime.stall_s=10 &
  pid=$!
  until (($(cat "$work/$name/metrics.jsonl" 2> /dev/null | wc -l) >= 2)) || ! kill -0 $pid 2> /dev/null; do sleep 0.2; done
  for rank in $(pgrep -f "run.name=$name "); do
    if tr '\0' '\n' < /proc/"$rank"/environ | grep -qx RANK=1; then kill "-$2" "$rank"; break; fi
  done
  if wait $pid; then echo "FAILED: $name: the job ended as if nothing had been"; failed=1
  elif grep -q "$3" "$work/$name.log"; then echo "ok: $name: $(grep -m 1 "$3" "$work/$name.log" | cut -c1-200)"
  else echo "FAILED: $name: $(grep -v '^ *$' "$work/$name.log" | tail -n 1 | cut -c1-300)"; failed=1; fi
  if [[ $2 == STOP ]]; then kill -CONT "$rank" 2> /dev/null || true; fi
}

job grpo grpo rollout.samples_per_prompt=4 || { tail -n 5 "$work/grpo.log"; exit 1; }
job ppo ppo || { tail -n 5 "$work/ppo.log"; exit 1; }
two="cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 2}"
four="cluster={gpu: a100-80g, nodes: 1, gpus_per_node: 4}"
for over in ${BRAID_OVER:-nccl gloo}; do
  if [[ $over == gloo ]]; then export BRAID_NO_NCCL=1; else unset BRAID_NO_NCCL; fi
  grpo=(rollout.samples_per_prompt=4 placement=colocated)
  try "grpo-dp2-$over" grpo "${grpo[@]}" "$two" 'parallel={dp: 2}'
  try "grpo-zero3-$over" grpo "${grpo[@]}" "$two" 'parallel={dp: 2, zero: 3}'
  try "grpo-tp2-$over" grpo "${grpo[@]}" "$two" 'parallel={tp: 2}'
  try "grpo-pp2-$over" grpo "${grpo[@]}" "$two" 'parallel={pp: 2, micro_batches: 2}'
  try "ppo-disaggregated-$over" ppo placement=disaggregated "$two"
  try "ppo-tp2-pp2-$over" ppo placement=colocated "$four" 'parallel={tp: 2, pp: 2, micro_batches: 2}'
  try "ppo-fused-$over" ppo "$(plan "ppo-fused-$over" ppo 2 "$scored$fused")" "$two"
  try "ppo-hand-over-$over" ppo "$(plan "ppo-hand-over-$over" ppo 2 "$scored$handed")" "$two"
  try "ppo-zero3-and-pp2-$over" ppo "$(plan "ppo-zero3-and-pp2-$over" ppo 4 "$moved")" "$four"
  ends "killed-$over" KILL 'rank 1'
  ends "stopped-$over" STOP 'rank 1'
done
if ((failed)); then exit 1; fi
echo "all of it agrees with one process on $device"

#!/usr/bin/env bash
# `braid plan` after a short search beside a long one, for LLaMA 7B-70B on 8-128 GPUs (docs/benchmarks_planner.md).
# usage: bench/plan_table.sh [path of braid]      SHORT (default 10) and LONG (default 600): seconds
set -euo pipefail
BRAID=${1:-build/braid}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export SHORT=${SHORT:-10} LONG=${LONG:-600}
echo "| actor and critic | GPUs | ${SHORT} s: evaluator s | ${LONG} s: evaluator s | difference % | bound s | simulated step s | wall s |"
echo "|---|---|---|---|---|---|---|---|"
while read -r model nodes; do
  printf 'algorithm: {name: ppo}\nmodel: {size: %s}\ncluster: {gpu: a100-80g, nodes: %s, gpus_per_node: 8}\nrollout: {prompts_per_step: 512, max_response_length: 384}\ndata: {train: "task:digits", max_prompt_length: 128}\n' "$model" "$nodes" >"$WORK/c.yaml"
  for limit in "$SHORT" "$LONG"; do
    "$BRAID" plan "$WORK/c.yaml" --threads 2 --time-limit "$limit" --json >"$WORK/$limit.json" 2>"$WORK/error" || { echo "| $model | $((8 * nodes)) | $(tail -1 "$WORK/error") |"; continue 2; }
  done
  python3 - "$model" "$((8 * nodes))" "$WORK/$SHORT.json" "$WORK/$LONG.json" <<'PY'
import json, sys
short, long = (json.load(open(path)) for path in sys.argv[3:5])
least = lambda r: min(e["step_s"] for e in r["log"] if e["fits"])
a, b = least(short), least(long)
print(f"| {sys.argv[1]} | {sys.argv[2]} | {a:.3f} | {b:.3f} | {100 * (a / b - 1):.2f} | {long['lower_bound_s']:.3f} | {short['step_s']:.3f} | {short['seconds']:.1f} |", flush=True)
PY
done <<'LIST'
llama2-7b 1
llama2-7b 2
llama2-7b 4
llama2-7b 8
llama2-7b 16
llama2-13b 2
llama2-13b 4
llama2-13b 16
llama2-70b 8
llama2-70b 16
LIST

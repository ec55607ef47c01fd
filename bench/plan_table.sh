#!/usr/bin/env bash
# `braid plan` after SHORT seconds beside FACTOR times its work units (60 x 10 s = ten minutes on an equal machine), for LLaMA
# 7B-70B in bf16 on 8-128 GPUs (docs/benchmarks_planner.md). The long search is skipped where the short one proved its optimum.
# usage: bench/plan_table.sh [path of braid]
#   CASES ("MODEL NODES,..."), SHORT (default 10), FACTOR (60), THREADS (2), MOST: seconds that a long search may take (default: no limit)
set -euo pipefail
BRAID=${1:-build/braid}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
SHORT=${SHORT:-10} FACTOR=${FACTOR:-60} THREADS=${THREADS:-2} MOST=${MOST:-1000000}
CASES=${CASES:-"llama2-7b 1,llama2-7b 4,llama2-7b 16,llama2-13b 4,llama2-13b 16,codellama-34b 4,codellama-34b 16,llama2-70b 8,llama2-70b 16"}

plan() { "$BRAID" plan "$WORK/c.yaml" --threads "$THREADS" --layouts-only --json "$@"; }

echo "| actor and critic | GPUs | ${SHORT} s: evaluator s | units | wall s | long: evaluator s | units | difference % | bound s | simulated step s |"
echo "|---|---|---|---|---|---|---|---|---|---|"
tr ',' '\n' <<<"$CASES" | while read -r model nodes; do
  printf 'algorithm: {name: ppo}\nmodel: {size: %s, dtype: bf16}\ncluster: {gpu: a100-80g, nodes: %s, gpus_per_node: 8}\nrollout: {prompts_per_step: 512, max_response_length: 384}\ndata: {train: "task:digits", max_prompt_length: 128}\n' "$model" "$nodes" >"$WORK/c.yaml"
  plan --time-limit "$SHORT" >"$WORK/short.json"
  read -r proven units < <(python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["proven"], r["units"])' "$WORK/short.json")
  cp "$WORK/short.json" "$WORK/long.json"
  [ "$proven" = True ] || plan --max-units $((FACTOR * units)) --time-limit "$MOST" >"$WORK/long.json"
  python3 - "$model" "$((8 * nodes))" "$WORK/short.json" "$WORK/long.json" <<'PY'
import json, sys
short, long = (json.load(open(path)) for path in sys.argv[3:5])
least = lambda r: min(e["step_s"] for e in r["log"] if e["fits"])
a, b = least(short), least(long)
mark = lambda r: f"{r['units']}" + (", proven" if r["proven"] else "")
print(f"| {sys.argv[1]} | {sys.argv[2]} | {a:.3f} | {mark(short)} | {short['seconds']:.1f} | {b:.3f} | {mark(long)} | {100 * (a / b - 1):.2f} "
      f"| {long['lower_bound_s']:.3f} | {short['step_s']:.3f} |", flush=True)
PY
done

#!/usr/bin/env bash
# The table of docs/benchmarks_planner.md on tabulated search problems: cost, proof, time and rate for five seeds on each
# committed problem, then on generated ones up to 128 devices and 10 000 options per call.
# usage: bench/search_table.sh [path of braid]      (THREADS, SEEDS and LIMIT in seconds may be set)
set -euo pipefail
cd "$(dirname "$0")/.."
BRAID=${1:-build/braid}
export THREADS=${THREADS:-2} LIMIT=${LIMIT:-10}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

make_problem() { python3 tools/make_search_problem.py "$WORK/$1.json.gz" "${@:2}"; }
make_problem ppo_7b_24gpu --graph ppo_loose --devices 24 --smallest-mesh 1
make_problem remax_7b_32gpu --graph remax --devices 32 --smallest-mesh 1
make_problem safe_7b_64gpu --graph safe --devices 64
make_problem ppo_70b_128gpu --devices 128 --actor-size 70 --critic-size 70
make_problem ppo_7b_128gpu_10k --devices 128 --options 10000
make_problem ppo_loose_7b_128gpu_10k --graph ppo_loose --devices 128 --options 10000
make_problem grpo_7b_128gpu_10k --graph grpo --devices 128 --options 10000
make_problem remax_7b_128gpu_10k --graph remax --devices 128 --options 10000
make_problem safe_7b_128gpu_10k --graph safe --devices 128 --options 10000
make_problem chain_7b_128gpu_10k --graph chain --devices 128 --options 10000 --seed 2
make_problem diamond_7b_128gpu_10k --graph diamond --devices 128 --options 10000 --seed 3
make_problem tangle_7b_128gpu_10k --graph tangle --devices 128 --options 10000 --seed 4
make_problem ppo_34b_128gpu_10k_40gib --devices 128 --options 10000 --memory-gib 40 --seed 7 --actor-size 34 --critic-size 13
make_problem safe_7b_48gpu_32gib --graph safe --devices 48 --memory-gib 32 --seed 6

row() { # file, seed
  "$BRAID" search-table "$1" --seed "$2" --threads "$THREADS" --time-limit "$LIMIT" --json
}
echo "| problem | cost s | bound s | gap % | proven | seconds | to best s | evaluations/s/thread |"
echo "|---|---|---|---|---|---|---|---|"
for problem in tests/data/search_problems/*.json.gz "$WORK"/*.json.gz; do
  for seed in $(seq 1 "${SEEDS:-5}"); do row "$problem" "$seed"; done | python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
def span(values, digits):
    low, high = (f"{pick(values):,.{digits}f}" for pick in (min, max))
    return low if low == high else f"{low} - {high}"
print("|", " | ".join([rows[0]["problem"], span([r["cost"] for r in rows], 6), span([r["lower_bound"] for r in rows], 6),
    span([100 * r["gap"] for r in rows], 2), "{} of {}".format(sum(r["optimal"] for r in rows), len(rows)),
    span([r["seconds"] for r in rows], 3), span([r["time_to_best"] for r in rows], 3),
    span([r["evaluations_per_s_per_thread"] for r in rows], 0)]), "|", flush=True)'
done

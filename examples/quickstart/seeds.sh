#!/usr/bin/env bash
# The quickstart for several seeds: fails unless every one raises the gold reward by the margin, and writes the curves.
# Usage: seeds.sh path/to/braid SEED...
set -euo pipefail
cd "$(dirname "$0")/../.."
braid=$1
shift
runs=()
for seed in "$@"; do
  examples/quickstart/run.sh "$braid" "train.seed=$seed" log.console=false run.overwrite=true
  rm -rf "runs/seed$seed"
  cp -r runs/quickstart "runs/seed$seed"
  runs+=("runs/seed$seed")
done
mkdir -p docs/evidence
python3 tools/check_quickstart.py --evidence docs/evidence/quickstart.json "${runs[@]}"
python3 tools/plot_quickstart.py docs/evidence/quickstart.json docs/quickstart.svg

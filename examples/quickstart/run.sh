#!/usr/bin/env bash
# SFT, reward model, PPO: the whole of RLHF on a tiny model. Usage: run.sh path/to/braid [key=value ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
braid=$1
shift
for stage in sft rm ppo; do
  echo "== $stage"
  "$braid" train "examples/quickstart/$stage.yaml" "$@"
done
python3 tools/check_quickstart.py runs/quickstart/ppo/metrics.jsonl

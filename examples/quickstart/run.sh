#!/usr/bin/env bash
# SFT, reward model, PPO: the whole of RLHF on a tiny model. Usage: run.sh path/to/braid [key=value ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
braid=$1
shift
for stage in sft rm ppo; do
  started=$SECONDS
  echo "== $stage"
  "$braid" train "examples/quickstart/$stage.yaml" run.overwrite=true "$@"
  echo "== $stage took $((SECONDS - started)) s"
done
if command -v python3 > /dev/null; then
  python3 tools/check_quickstart.py runs/quickstart/ppo/metrics.jsonl
else
  echo "python3 is not installed: the check of the gold reward is left out"
fi

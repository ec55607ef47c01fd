#!/usr/bin/env bash
# Does bf16 learn as f32 does? SFT and GRPO from nothing in both, then the comparison of the curves.
# Usage: dtypes.sh path/to/braid SEED...
set -euo pipefail
cd "$(dirname "$0")/../.."
braid=$1
shift
pairs=()
for seed in "$@"; do
  for dtype in f32 bf16; do
    run=runs/dtype_$dtype$seed
    common=("run.dir=$run" "train.seed=$seed" "model.dtype=$dtype" log.console=false run.overwrite=true)
    "$braid" train examples/quickstart/sft.yaml "${common[@]}"
    "$braid" train examples/quickstart/grpo.yaml "${common[@]}" "model.path=$run/sft/export/actor"
  done
  pairs+=("$seed=runs/dtype_f32$seed,runs/dtype_bf16$seed")
done
python3 tools/compare_dtypes.py docs/evidence/dtypes.json "${pairs[@]}"

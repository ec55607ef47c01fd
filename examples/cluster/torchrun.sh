#!/usr/bin/env bash
# Ranks under torchrun, which starts them again after a failure; run it on every machine with the same MASTER_ADDR.
# NODES machines with RANKS processes each make the devices of the plan. Usage: torchrun.sh BRAID [KEY=VALUE ...]
set -euo pipefail
exec torchrun --no-python --nnodes "${NODES:-1}" --nproc-per-node "${RANKS:-2}" --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "${MASTER_ADDR:-127.0.0.1}:${MASTER_PORT:-29500}" \
  "$1" train examples/cluster/grpo.yaml plan.file=examples/cluster/two_ranks.plan.yaml checkpoint.resume=auto "${@:2}"

#!/usr/bin/env bash
# All ranks on this machine: the program starts one process for each device of the plan itself.
# Run it in the repository's folder. Usage: one_machine.sh BRAID [KEY=VALUE ...]
set -euo pipefail
exec "$1" train examples/cluster/grpo.yaml plan.file=examples/cluster/two_ranks.plan.yaml "${@:2}"

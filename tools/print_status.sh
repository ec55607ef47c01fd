#!/usr/bin/env bash
# Prints what README.md says of the prices: how many measurements there are, how many are priced, and the error of RL steps that
# the fit has not seen. `braid` is the one in PATH (tools/check_outputs.py).
set -euo pipefail
cd "$(dirname "$0")/../examples/measurements"
rows=$(cat measurements.csv memory.csv | grep -vc '^id,')
{ braid validate measurements.csv --folds 5 || true; braid validate memory.csv --folds 5 || true; } | awk -v rows="$rows" '
  /supported %/ {priced += $7}
  /rl_step median error %/ {error = $6; steps = $9; worst = $12}
  END {
    printf "* Prices of GPUs are fitted to %d published measurements, of which %d state enough to be priced.\n", rows, priced
    printf "  Over the %d published RL steps, each priced by a fit that has not seen it, the median error is\n", steps
    printf "  %s %%, and one in ten is off by more than %d %%\n", error, worst
    print "  (`braid validate examples/measurements/measurements.csv --folds 5`;"
    print "  [docs/cost_model.md](docs/cost_model.md))."
  }'

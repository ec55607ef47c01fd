#!/usr/bin/env bash
# Writes what pages take from the program: the table that ends docs/configuration.md, the picture of README.md and all outputs of
# commands (tools/check_outputs.py); makes links of paths and checks the pages. Usage: make_docs.sh path/to/braid
set -euo pipefail
cd "$(dirname "$0")/.."
{ sed '/^| key | type |/,$d' docs/configuration.md; "$1" config --list; } > docs/configuration.md.new
mv docs/configuration.md.new docs/configuration.md
python3 tools/plot_plan.py "$1" docs/plan_timeline.svg
python3 tools/check_outputs.py "$1" --all --write
python3 tools/check_docs.py --fix

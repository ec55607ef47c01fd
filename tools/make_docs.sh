#!/usr/bin/env bash
# Writes what pages take from the program: the pictures of a plan and of a step, and all outputs of commands and generated tables
# (tools/check_outputs.py); makes links of paths and checks the pages. Usage: make_docs.sh path/to/braid
set -euo pipefail
cd "$(dirname "$0")/.."
python3 tools/plot_plan.py "$1" docs/plan_timeline.svg
python3 tools/plot_graph.py "$1" docs/ppo_step.svg
python3 tools/plot_weights.py "$1" docs/weights_move.svg
python3 tools/plot_fused.py "$1" docs/fused_schedule.svg
python3 tools/plot_good_bad.py "$1" docs/evidence/good_bad.json docs/good_bad_curves.svg
if command -v chromium > /dev/null; then tools/shoot_report.sh "$1" docs/report.png; fi
python3 tools/plot_quickstart.py docs/evidence/quickstart.json docs/quickstart.svg
python3 tools/algorithm_curves.py --draw docs/evidence/algorithm_curves.json docs/algorithm_curves.svg
python3 tools/check_outputs.py "$1" --all --write
python3 tools/wrap_pages.py docs/*.md ./*.md examples/*/README.md
python3 tools/check_docs.py --fix

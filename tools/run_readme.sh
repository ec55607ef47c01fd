#!/usr/bin/env bash
# Runs every block of README.md that opens with ```sh runnable, each in a shell of its own at the repository's root.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
awk -v folder="$folder" '/^```sh runnable/ {inside = 1; file = sprintf("%s/%03d.sh", folder, ++n); next}
  /^```/ {inside = 0} inside {print > file}' README.md
for block in "$folder"/*.sh; do
  [ -e "$block" ] || { echo "README.md has no runnable block" >&2; exit 1; }
  echo "README: $(head -n 1 "$block")"
  bash -euo pipefail "$block"
done

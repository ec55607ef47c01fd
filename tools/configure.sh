#!/usr/bin/env bash
# Configures the build folder $1 with the libtorch that setup.sh found; does nothing when that is already so.
set -euo pipefail
cd "$(dirname "$0")/.."
torch_dir=$(cat .deps/torch_dir)
if [ -f "$1/build.ninja" ] && grep -qx "BRAID_TORCH_ROOT:[A-Z]*=$torch_dir" "$1/CMakeCache.txt"; then exit 0; fi
cmake -S . -B "$1" -G Ninja -DBRAID_TORCH_ROOT="$torch_dir" > "$(mktemp -d)/configure.log" || exit 1

#!/usr/bin/env bash
# Configures the build folder $1 with the libtorch and the Arrow that setup.sh found; does nothing when that is already so. Several
# sources are compiled as one unit, which takes a quarter of the time; UNITY=OFF compiles file by file, which builds less
# after a change of one file.
set -euo pipefail
cd "$(dirname "$0")/.."
torch_dir=$(cat .deps/torch_dir)
arrow_dir=$(cat .deps/arrow_dir 2>/dev/null || true)
unity=${UNITY:-ON}
if [ -f "$1/build.ninja" ] && grep -qx "BRAID_TORCH_ROOT:[A-Z]*=$torch_dir" "$1/CMakeCache.txt" &&
  grep -qx "BRAID_ARROW_ROOT:[A-Z]*=$arrow_dir" "$1/CMakeCache.txt" &&
  grep -qx "CMAKE_UNITY_BUILD:[A-Z]*=$unity" "$1/CMakeCache.txt"; then exit 0; fi
log=$(mktemp)
cmake -S . -B "$1" -G Ninja -DBRAID_TORCH_ROOT="$torch_dir" -DBRAID_ARROW_ROOT="$arrow_dir" \
  -DCMAKE_UNITY_BUILD="$unity" -DCMAKE_UNITY_BUILD_BATCH_SIZE=16 > "$log" ||
  { cat "$log" >&2; exit 1; }
rm -f "$log"

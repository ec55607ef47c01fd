#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS_EACH (default 600) from the seeds of fuzz/seeds.
# usage: fuzz/run.sh [target...]
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build-fuzz}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DBRAID_WITH_TORCH=OFF -DBRAID_BUILD_TESTS=OFF -DBRAID_BUILD_BENCH=OFF -DBRAID_BUILD_FUZZ=ON >/dev/null
cmake --build "$BUILD" --target "${targets[@]}"
for target in "${targets[@]}"; do
  corpus="$BUILD/corpus/$target"
  mkdir -p "$corpus"
  seeds="fuzz/seeds/${target%_fuzz}"
  echo "== $target"
  "$BUILD/$target" -max_total_time="${SECONDS_EACH:-600}" -timeout=10 -rss_limit_mb=2048 -max_len=20000 -print_final_stats=1 \
    -verbosity=0 "$corpus" $([ -d "$seeds" ] && echo "$seeds") 2>&1 | grep -E "ERROR|SUMMARY|stat::number_of_executed|CHECK|panic" || true
  if compgen -G "crash-*" >/dev/null || compgen -G "timeout-*" >/dev/null || compgen -G "oom-*" >/dev/null; then
    echo "$target: failing input saved"; exit 1
  fi
done

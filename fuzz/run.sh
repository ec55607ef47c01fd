#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS_EACH (default 600) from the seeds of fuzz/seeds and what
# earlier runs found. Ends with code 1 at the first input that crashes, hangs for HANG_S (10) seconds, leaks or takes 2 GiB; the input
# stays in BUILD/artifacts.
# usage: fuzz/run.sh [target...]      BUILD=folder (default build-fuzz)
set -euo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build-fuzz}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
# Debian names the compiler by its version alone.
suffix=""
for candidate in "" $(compgen -c clang++- | sed -n 's/^clang++\(-[0-9]*\)$/\1/p' | sort -t- -k2 -nr); do
  if command -v "clang++$candidate" >/dev/null && command -v "clang$candidate" >/dev/null; then suffix=$candidate; break; fi
done
if ! command -v "clang++$suffix" >/dev/null; then
  echo "fuzz/run.sh: no clang++ in PATH; install clang (Debian: apt-get install clang-14)" >&2
  exit 1
fi
cmake -S . -B "$BUILD" -G Ninja -DCMAKE_CXX_COMPILER="clang++$suffix" -DCMAKE_C_COMPILER="clang$suffix" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DBRAID_WITH_TORCH=OFF -DBRAID_BUILD_TESTS=OFF -DBRAID_BUILD_BENCH=OFF -DBRAID_BUILD_FUZZ=ON >/dev/null
cmake --build "$BUILD" --target "${targets[@]}"
mkdir -p "$BUILD/artifacts"
for target in "${targets[@]}"; do
  corpus="$BUILD/corpus/$target"
  mkdir -p "$corpus"
  log="$BUILD/artifacts/$target.log"
  if ! "$BUILD/$target" -max_total_time="${SECONDS_EACH:-600}" -timeout="${HANG_S:-10}" -rss_limit_mb=2048 -max_len=20000 \
      -print_final_stats=1 -verbosity=0 -artifact_prefix="$BUILD/artifacts/$target-" "$corpus" "fuzz/seeds/${target%_fuzz}" \
      >"$log" 2>&1; then
    tail -40 "$log"
    echo "$target: failed, see $log"
    exit 1
  fi
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in ${SECONDS_EACH:-600} s, clean"
done

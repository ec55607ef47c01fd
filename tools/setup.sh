#!/usr/bin/env bash
# Installs what the build needs and is not there: Debian packages, libtorch, and Arrow for parquet files. With
# BRAID_TORCH_DIR set, packages and libtorch are only checked; with BRAID_ARROW_DIR set (a pyarrow folder, or none), Arrow.
# The folders are remembered in .deps/torch_dir and .deps/arrow_dir.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .deps

missing=()
while read -r package; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done < tools/packages.txt

if [ ${#missing[@]} -gt 0 ]; then
  if [ -n "${BRAID_TORCH_DIR:-}" ]; then
    echo "note: with BRAID_TORCH_DIR set nothing is installed; packages not found: ${missing[*]}" >&2
  elif [ "$(id -u)" = 0 ]; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "These packages are missing; install them as root and run the command again:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 2
  fi
fi

has_torch() { [ -f "$1/lib/libtorch_cpu.so" ] && [ -d "$1/include/ATen" ]; }

# Of an environment's own torch: old ones lack headers that Braid uses.
is_recent() { grep -qE "^__version__ = '2\.(1[3-9]|[2-9][0-9])" "$1/version.py" 2>/dev/null; }

find_torch() {
  if [ -n "${BRAID_TORCH_DIR:-}" ]; then
    has_torch "$BRAID_TORCH_DIR" || { echo "BRAID_TORCH_DIR=$BRAID_TORCH_DIR holds no lib/libtorch_cpu.so and include/ATen; name the torch folder itself" >&2; exit 2; }
    echo "$BRAID_TORCH_DIR"; return
  fi
  local python found
  for python in ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python"} python3; do
    found=$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null || true)
    if [ -z "$found" ] || ! has_torch "$found"; then continue; fi
    if is_recent "$found"; then echo "$found"; return; fi
    echo "note: the torch of $python is older than 2.13 and is left alone" >&2
  done
  for found in .deps/python/lib/python3*/site-packages/torch; do
    if has_torch "$found"; then (cd "$found" && pwd); return; fi
  done
  [ -x .deps/python/bin/python ] || python3 -m venv .deps/python >&2
  if [ -n "${BRAID_TORCH_WHEEL:-}" ]; then
    .deps/python/bin/python -m pip install -q --no-deps "$BRAID_TORCH_WHEEL" >&2
  else
    .deps/python/bin/python -m pip install -q torch==2.13.0 >&2
  fi
  for found in .deps/python/lib/python3*/site-packages/torch; do
    if has_torch "$found"; then (cd "$found" && pwd); return; fi
  done
  echo "pip ended without a usable torch; see 'Getting libtorch' in the README" >&2
  exit 2
}

has_arrow() {
  [ -f "$1/include/parquet/arrow/reader.h" ] || return 1
  compgen -G "$1/libparquet.so*" >/dev/null || compgen -G "$1/lib/libparquet.so*" >/dev/null
}

# Older ones return their readers in another way.
is_recent_arrow() { grep -qE "version = '(2[1-9]|[3-9][0-9])\." "$1/_generated_version.py" 2>/dev/null; }

# Prints the folder of Arrow's headers and libraries, or nothing: then parquet files cannot be read, and all else works.
find_arrow() {
  if [ "${BRAID_ARROW_DIR:-}" = none ]; then return; fi
  if [ -n "${BRAID_ARROW_DIR:-}" ]; then
    has_arrow "$BRAID_ARROW_DIR" || { echo "BRAID_ARROW_DIR=$BRAID_ARROW_DIR holds no include/parquet and libparquet.so; name the pyarrow folder itself, or none" >&2; exit 2; }
    echo "$BRAID_ARROW_DIR"; return
  fi
  local python found
  for python in ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python"} python3; do
    found=$("$python" -c 'import importlib.util as u; s = u.find_spec("pyarrow"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null || true)
    if [ -n "$found" ] && has_arrow "$found" && is_recent_arrow "$found"; then echo "$found"; return; fi
  done
  if ! has_arrow .deps/arrow/pyarrow && [ ! -f .deps/arrow_failed ]; then
    { [ -x .deps/python/bin/python ] || python3 -m venv .deps/python; } >&2 &&
      .deps/python/bin/python -m pip install -q --no-deps --target .deps/arrow pyarrow==22.0.0 > .deps/arrow.log 2>&1 || true
  fi
  if has_arrow .deps/arrow/pyarrow; then (cd .deps/arrow/pyarrow && pwd); return; fi
  touch .deps/arrow_failed
  echo "note: no Arrow (.deps/arrow.log says why), so this build reads no parquet or Arrow files; remove .deps/arrow_failed to try again, or set BRAID_ARROW_DIR" >&2
}

torch_dir=$(find_torch)
echo "$torch_dir" > .deps/torch_dir
arrow_dir=$(find_arrow)
echo "$arrow_dir" > .deps/arrow_dir

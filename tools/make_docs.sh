#!/usr/bin/env bash
# Brings the table of keys at the end of docs/configuration.md up to date from the program's own list, then checks the
# links and paths of all pages. Usage: make_docs.sh path/to/braid
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/configuration.md
{ sed '/^| key | type |/,$d' "$page"; "$1" config --list; } > "$page.new"
mv "$page.new" "$page"
python3 tools/check_docs.py

#!/usr/bin/env bash
# Writes the generated pages (docs/configuration.md from the program's own list of keys) and checks that every relative
# link and every `path` in code font that looks like a file of the repository exists. Usage: make_docs.sh path/to/braid
set -euo pipefail
cd "$(dirname "$0")/.."
"$1" config --list > docs/configuration.md.new
mv docs/configuration.md.new docs/configuration.md
python3 tools/check_docs.py

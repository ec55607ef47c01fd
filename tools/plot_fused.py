#!/usr/bin/env python3
"""Draws the fused schedule of docs/fuse.md as an SVG: what `braid fuse --plot` makes of the page's own problem.

Usage: plot_fused.py BRAID OUT.svg [--check]       --check fails where OUT.svg shows another schedule
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fuse.md"
UNITS = 64  # as on the page; more than enough to prove the optimum


def main():
    braid, target = (argument for argument in sys.argv[1:] if argument != "--check")
    problem = re.search(r"^```json\n(.*?)^```", PAGE.read_text(), re.M | re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        source, picture = Path(folder) / "problem.json", Path(folder) / "fused.svg"
        source.write_text(problem)
        subprocess.run([braid, "fuse", source, "--max-units", str(UNITS), "--plot", picture], check=True, stdout=subprocess.DEVNULL)
        text = picture.read_text()
    if "--check" not in sys.argv:
        Path(target).write_text(text)
    elif Path(target).read_text() != text:
        sys.exit(f"{target} shows another schedule than {braid} finds now; tools/make_docs.sh {braid} draws it again")


if __name__ == "__main__":
    main()

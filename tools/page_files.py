#!/usr/bin/env python3
"""Writes the files that a page shows, so that tests run what a reader copies: each block whose first line is `# FOLDER/NAME`
becomes NAME in another folder, and FOLDER in it the name of that folder.

Usage: page_files.py PAGE FOLDER TO         e.g. page_files.py docs/own_data.md runs/own /tmp/own
"""
import re
import sys
from pathlib import Path


def main():
    page, folder, to = sys.argv[1:]
    blocks = re.findall(rf"^```[a-z]+\n(# {re.escape(folder)}/(\S+)\n.*?)^```$", Path(page).read_text(), re.M | re.S)
    if not blocks:
        sys.exit(f"{page}: no block begins with '# {folder}/'")
    Path(to).mkdir(parents=True, exist_ok=True)
    for text, name in blocks:
        (Path(to) / name).write_text(text.replace(folder, to))


main()

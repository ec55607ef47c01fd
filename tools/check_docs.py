#!/usr/bin/env python3
"""Checks the Markdown pages: relative links lead to files, and paths in code font that begin with a top-level folder
exist. Exits non-zero with one line per violation."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src/", "tools/", "docs/", "examples/", "bench/", "apps/", "tests/", "cmake/", "fuzz/")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")
CODE = re.compile(r"`([^`\s]+)`")
PLACEHOLDER = re.compile(r"[*{}<>$]|[A-Z]{2,}\b(?!\.md)")


def wrong_paths(page):
    """Yields what a page names and the repository lacks."""
    text = page.read_text()
    for target in LINK.findall(text):
        if "://" not in target and not (page.parent / target).exists():
            yield target
    for target in CODE.findall(text):
        plain = target.rstrip(".,;:")
        if plain.startswith(FOLDERS) and not PLACEHOLDER.search(plain) and not (ROOT / plain).exists():
            yield plain


def main():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "examples").glob("**/*.md")]
    wrong = [f"{page.relative_to(ROOT)}: {target} does not exist" for page in pages for target in wrong_paths(page)]
    print("\n".join(wrong) or f"docs: {len(pages)} pages, every path exists")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Wraps the running text of Markdown pages at 100 columns. Tables, blocks, comments, headings, lines indented by four or more than their
list item and what a command prints (tools/check_outputs.py) stay; code in backticks is not broken, nor are the field's words, so that a
search finds them. --check also names a line of text or of indented code that is longer: it is to be broken by hand.

Usage: wrap_pages.py [--check] PAGE...
"""
import re
import sys
from pathlib import Path

from check_docs import SEARCHED

WIDTH = 100
FENCE = re.compile(r"^ *```")
PRINTED = re.compile(r"^<!-- (slow )?text: ")
ITEM = re.compile(r"^ *([*+-]|\d+\.) +(?=\S)")
STAYS = re.compile(r"^(#|\||>|<|!\[|\s*$|\t)")
BEGINS_SOMETHING = re.compile(r"^([*+-]|\d+[.)]|#+|[|>].*)$")  # a word that must not stand first in a line
WORD = re.compile(rf"(?:`[^`\n]*`|\b(?:{'|'.join(term for term in SEARCHED if ' ' in term)})|\S)+", re.I)
SKIPPED = re.compile(r"^ *(\||<|!?\[[^\]]*\]\([^)]*\)[.,;:]?$)")  # tables, markers, and a link that fills its line


def wrapped(text, first, rest):
    """The words of a paragraph in lines of WIDTH columns; `first` and `rest`: what lines begin with."""
    words = []
    for word in WORD.findall(text):
        if words and BEGINS_SOMETHING.match(word):
            words[-1] += " " + word
        else:
            words.append(word)
    lines, line = [], first
    for word in words:
        empty = line in (first, rest)
        if not empty and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
    return [*lines, line]


def is_code(line, items):
    """Whether a line is indented code. `items`: the columns where the text of the open list items begins, which a line closes or opens."""
    if not line.strip():
        return False
    indent = len(line) - len(line.lstrip(" "))
    while items and indent < items[-1]:
        items.pop()
    if indent - (items[-1] if items else 0) >= 4:
        return True
    item = ITEM.match(line)
    if item:
        items.append(len(item[0]))
    return False


def paragraphs(lines):
    """Yields (lines, whether they are a paragraph)."""
    held, items, fenced, comment, printed = [], [], False, False, False
    for line in lines:
        fence = bool(FENCE.match(line))
        printed = (printed or bool(PRINTED.match(line))) and line != "<!-- end -->"
        code = not (fenced or comment or printed) and is_code(line, items)
        stays = fenced or fence or comment or printed or code or bool(STAYS.match(line)) or line.lstrip().startswith("<!--")
        if line.lstrip().startswith("<!--") or comment:
            comment = "-->" not in line
        if held and (stays or ITEM.match(line)):
            yield held, True
            held = []
        if stays:
            yield [line], False
        else:
            held.append(line)
        fenced = fenced != fence
    if held:
        yield held, True


def wrap(text):
    out = []
    for held, is_text in paragraphs(text.splitlines()):
        if not is_text:
            out += held
            continue
        item = ITEM.match(held[0])
        indent = re.match(r" *", held[0])[0]
        first = item[0] if item else indent
        rest = " " * len(item[0]) if item else indent
        if item is None and len(held) > 1 and not held[1].startswith(indent):
            out += held
            continue
        words = " ".join([held[0][len(first):], *(line.strip() for line in held[1:])])
        out += wrapped(words, first, rest)
    return "\n".join(out) + "\n"


def too_long(text):
    """The numbers of lines beyond WIDTH of running text and of indented code."""
    fenced = printed = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = bool(FENCE.match(line))
        printed = (printed or bool(PRINTED.match(line))) and line != "<!-- end -->"
        fenced = fenced != fence
        if len(line) > WIDTH and not (fenced or fence or printed or SKIPPED.match(line)):
            yield number


def main():
    check = "--check" in sys.argv
    changed, long = [], []
    for name in sys.argv[1:]:
        if name == "--check":
            continue
        page = Path(name)
        text = page.read_text()
        long += [f"{name}:{number}" for number in too_long(text)]
        if wrap(text) == text:
            continue
        changed.append(name)
        if not check:
            page.write_text(wrap(text))
    faults = [f"not wrapped at {WIDTH}: {', '.join(changed)}; python3 tools/wrap_pages.py {' '.join(changed)} wraps them"] if changed else []
    faults += [f"longer than {WIDTH}, to be broken by hand: {', '.join(long)}"] if long else []
    if check and faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()

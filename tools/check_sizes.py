#!/usr/bin/env python3
"""Reports function and file sizes of src/ and apps/ against the budgets of CONTRIBUTING.md (functions: 90 % under 35
lines, limit 60; files: 90 % under 400, limit 800). A line `// NOLINT(size): reason` in a function lifts its limit.
Exits non-zero when a budget is broken. Functions are found by clang-format's shape: a body opens at the end of a line
and closes with a brace at the same indentation."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPENING = re.compile(r"^(\s*)(?!namespace|class|struct|enum|union|extern|switch|if|for|while|do|else|try|return|case|default|//|#)[\w:~<>,&*\[\]\"'].*[)\w]( const)?( noexcept)?( override)?( ->.*)? \{$")


def functions(path):
    """Yields (line number, length in lines) of the outermost function bodies."""
    lines = path.read_text(encoding="utf-8").splitlines()
    index = 0
    while index < len(lines):
        found = OPENING.match(lines[index])
        if not found or "(" not in "".join(lines[max(0, index - 4) : index + 1]):
            index += 1
            continue
        # An initializer list stands four columns behind its constructor, where the body ends.
        indent = found[1][4:] if lines[index].lstrip().startswith(": ") else found[1]
        end = next((i for i in range(index + 1, len(lines)) if re.match(rf"^{indent}\}}", lines[i])), index)
        body = lines[index : end + 1]
        if not any("NOLINT(size)" in line for line in body):
            yield index + 1, len(body)
        index = end + 1


def share_below(values, limit):
    return sum(v < limit for v in values) / len(values) if values else 1.0


def main():
    paths = [p for folder in ("src", "apps") for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".h", ".cc")]
    file_lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in paths}
    found = [(p, line, length) for p in paths if p.suffix == ".cc" and not p.name.endswith("_test.cc") for line, length in functions(p)]
    lengths = sorted(length for _, _, length in found)
    problems = [f"{p}: {n} lines, limit 800" for p, n in file_lines.items() if n > 800]
    problems += [f"{p}:{line}: function of {length} lines, limit 60" for p, line, length in found if length > 60]
    share_functions, share_files = share_below(lengths, 35), share_below(list(file_lines.values()), 400)
    print(f"functions: {len(lengths)}, median {lengths[len(lengths) // 2] if lengths else 0} lines, {share_functions:.1%} under 35")
    print(f"files: {len(paths)}, {share_files:.1%} under 400 lines")
    if share_functions < 0.9:
        problems.append("fewer than 90 % of functions are under 35 lines")
    if share_files < 0.9:
        problems.append("fewer than 90 % of files are under 400 lines")
    print("\n".join(problems) or "sizes: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

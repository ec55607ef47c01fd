#!/usr/bin/env python3
"""Says which versions of the C and C++ libraries programs need: per file the highest of each kind, with the symbols that ask for it.
Exits non-zero where one is newer than LIMITS, those of Ubuntu 22.04 (Debian 12 has newer ones). Usage: check_symbols.py FILE..."""
import re
import subprocess
import sys

LIMITS = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
NEEDED = re.compile(r"\*UND\*.*\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\) +(\S+)")


def needed(path):
    """{kind: {version: [symbols]}} of what a program or shared library takes from libraries; nothing of a static program."""
    run = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True)
    if run.returncode != 0 and "not a dynamic object" not in run.stderr:
        sys.exit(f"check_symbols: {path}: {run.stderr.strip()}")
    out = {kind: {} for kind in LIMITS}
    for kind, version, symbol in NEEDED.findall(run.stdout):
        out[kind].setdefault(tuple(map(int, version.split("."))), []).append(symbol)
    return out


def dotted(version):
    return ".".join(map(str, version))


def describe(path):
    """(one line, faults) of a file."""
    parts, faults = [], []
    for kind, versions in needed(path).items():
        if not versions:
            continue
        top = max(versions)
        symbols = sorted(set(versions[top]))
        parts.append(f"{kind}_{dotted(top)} ({len(symbols)}: {', '.join(symbols[:3])}{', …' if len(symbols) > 3 else ''})")
        newer = [symbol for version, names in versions.items() if version > LIMITS[kind] for symbol in names]
        if newer:
            faults.append(f"{path}: newer than {kind}_{dotted(LIMITS[kind])}: {', '.join(sorted(set(newer)))}")
    return f"{path}: {', '.join(parts) or 'static, or nothing versioned'}", faults


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    bad = []
    for path in sys.argv[1:]:
        line, faults = describe(path)
        print(line)
        bad += faults
    sys.exit("\n".join(bad) if bad else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Says which versions of the C and C++ libraries programs need: per file the highest of each kind, with the symbols that ask for it.
Exits non-zero where one is newer than LIMITS, those of Ubuntu 22.04 (Debian 12 has newer ones). Usage: check_symbols.py FILE..."""
import re
import subprocess
import sys

LIMITS = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
NEEDED = re.compile(r"\*UND\*.*\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\) +(\S+)")


def dynamic_symbols(path):
    """What objdump prints of a program or shared library; None of a static program, which has none."""
    run = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True)
    if "not a dynamic object" in run.stderr:
        return None
    if run.returncode != 0:
        sys.exit(f"check_symbols: {path}: {run.stderr.strip()}")
    return run.stdout


def needed(symbols):
    """{kind: {version: [symbols]}} of what dynamic_symbols() printed."""
    out = {kind: {} for kind in LIMITS}
    for kind, version, symbol in NEEDED.findall(symbols):
        out[kind].setdefault(tuple(map(int, version.split("."))), []).append(symbol)
    return out


def dotted(version):
    return ".".join(map(str, version))


def describe(path):
    """(one line, faults) of a file."""
    symbols = dynamic_symbols(path)
    return (f"{path}: static", []) if symbols is None else judge(path, needed(symbols))


def judge(path, versions_needed):
    """(one line, faults) of a dynamic program or library, all of which need some version of the C library."""
    parts, faults = [], []
    if not versions_needed["GLIBC"]:
        faults.append(f"{path}: no version of the C library was found among its symbols")
    for kind, versions in versions_needed.items():
        if not versions:
            continue
        top = max(versions)
        symbols = sorted(set(versions[top]))
        parts.append(f"{kind}_{dotted(top)} ({len(symbols)}: {', '.join(symbols[:3])}{', …' if len(symbols) > 3 else ''})")
        newer = [symbol for version, names in versions.items() if version > LIMITS[kind] for symbol in names]
        if newer:
            faults.append(f"{path}: newer than {kind}_{dotted(LIMITS[kind])}: {', '.join(sorted(set(newer)))}")
    return f"{path}: {', '.join(parts)}", faults


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

#!/usr/bin/env python3
"""Compiles every source of a configured build folder with clang (syntax and warnings only), so that code which only g++
takes is found. Usage: lint.py BUILD_FOLDER [--tidy] [FILE ...]; --tidy also runs clang-tidy on the files. Exits non-zero
with the compiler's lines on the first kind of failure."""
import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_clang():
    """CLANGXX, or clang++; Debian may name it by its version alone."""
    names = [os.environ.get("CLANGXX", "clang++")] + [f"clang++-{version}" for version in range(30, 13, -1)]
    found = next((name for name in names if shutil.which(name)), None)
    if found is None:
        sys.exit("lint: no clang++ in PATH; install clang (Debian: apt-get install clang-14), or set CLANGXX")
    return found


CLANG = find_clang()
# The checks of g++ and clang differ in spelling; these are clang's that the code base does not follow.
FLAGS = ["-fsyntax-only", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-sign-compare",
         "-Wno-missing-field-initializers", "-Wno-unused-command-line-argument", "-Wno-ignored-optimization-argument"]
PCH = "#include <ATen/core/Tensor.h>\n#include <ATen/TensorOperators.h>\n#include <torch/csrc/autograd/custom_function.h>\n"


def include_flags(entry):
    """The -I, -isystem and -D arguments of a compile command."""
    words, out = shlex.split(entry["command"]), []
    for i, word in enumerate(words):
        if word in ("-I", "-isystem"):
            out += [word, words[i + 1]]
        elif word.startswith(("-I", "-D", "-isystem")):
            out.append(word)
    return out


def sources(build, names):
    """{file: flags} of our own sources in the compilation database."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if ROOT in path.parents and build not in path.parents:
            relative = str(path.relative_to(ROOT))
            if not names or relative in names:
                found[relative] = include_flags(entry)
    return found


def make_pch(folder, flags):
    header = Path(folder) / "torch.h"
    header.write_text(PCH)
    target = Path(folder) / "torch.pch"
    subprocess.run([CLANG, "-std=c++20", *flags, "-x", "c++-header", str(header), "-o", str(target)], check=True)
    return ["-include-pch", str(target)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--tidy", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    files = sources(build, set(arguments.files))
    if not files:
        sys.exit(f"{build}/compile_commands.json names none of the files; configure the build first")
    with tempfile.TemporaryDirectory() as folder:
        torch = [flags for flags in files.values() if any("BRAID_WITH_TORCH" in flag for flag in flags)]
        pch = make_pch(folder, [f for f in torch[0] if "BRAID_SOURCE" not in f]) if torch else []

        def compile_one(item):
            name, flags = item
            use = pch if any("BRAID_WITH_TORCH" in flag for flag in flags) else []
            run = subprocess.run([CLANG, *FLAGS, *flags, *use, name], cwd=ROOT, capture_output=True, text=True)
            if run.returncode == 0 and arguments.tidy:
                run = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), name], cwd=ROOT, capture_output=True, text=True)
                return name, bool(run.stdout.strip()), run.stdout
            return name, run.returncode != 0, run.stderr

        failed = 0
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for name, bad, text in pool.map(compile_one, files.items()):
                if bad:
                    failed += 1
                    print(f"{name}\n{text}", file=sys.stderr)
    print(f"lint: {len(files)} files, {failed} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Packs what people install from a build folder: OUT/braid-VERSION-linux-MACHINE, the planner as one static file, and the wheel
OUT/braid_engine-….whl with braid and braid-engine, which run on the torch of the environment that it is installed in. Refuses to
pack what needs newer C or C++ libraries than tools/check_symbols.py allows. Usage: make_dist.py BUILD [OUT]"""
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import check_symbols

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "braid_engine"
# Of every system that has the C and C++ libraries of check_symbols.LIMITS; libtorch uses the same copies.
SYSTEM = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+))\.so\.\d+$")
# Debian packages whose code is in the programs (docs/dependencies.md).
LINKED = ["libyaml-cpp-dev", "libcli11-dev", "nlohmann-json3-dev"]
LINKED_IN_WHEEL = [*LINKED, "libpcre2-dev", "libutf8proc-dev", "libgloo-dev"]
LINKED_IN_PLANNER = [*LINKED, "zlib1g-dev", "libssl-dev", "libc6-dev", "libstdc++-12-dev"]


def said(*command):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"make_dist: {' '.join(map(str, command))}: {run.stderr.strip() or run.stdout.strip()}")
    return run.stdout


def check(paths):
    faults = [fault for path in paths for fault in check_symbols.describe(path)[1]]
    if faults:
        sys.exit("make_dist: " + "\n".join(faults))


def licence_of(package):
    path = Path("/usr/share/doc") / package / "copyright"
    if not path.exists():
        sys.exit(f"make_dist: the licence of {package} is not at {path}; install the package")
    return path.read_text(errors="replace")


def make_planner(build, out, name):
    """The static planner, and the licences of what is in it."""
    target = out / name
    shutil.copy(build / "braid-planner", target)
    said("strip", target)
    if said("objdump", "-p", target).find("NEEDED") >= 0:
        sys.exit(f"make_dist: {target} is not static")
    parts = [("Braid", (ROOT / "LICENSE").read_text()), *((package, licence_of(package)) for package in LINKED_IN_PLANNER)]
    (out / f"{name}.licenses.txt").write_text("\n\n".join(f"===== {package} =====\n\n{text}" for package, text in parts))
    return target


def bundled_libraries(programs, torch):
    """{name: file} of the shared libraries that programs need and that neither every system nor torch has."""
    out = {}
    for program in programs:
        for line in said("ldd", program).splitlines():
            name, _, place = line.strip().partition(" => ")
            name = Path(name.split()[0]).name
            if SYSTEM.match(name) or (torch / "lib" / name).exists():
                continue
            if not place.startswith("/"):
                sys.exit(f"make_dist: {program} needs {name}, which is nowhere")
            out[name] = Path(place.split()[0]).resolve()
    return out


def package_of(library):
    """The Debian package that a shared library came with."""
    return said("dpkg-query", "-S", f"*/{library.name}").split(":")[0]


def version_in(path, pattern):
    found = re.search(pattern, path.read_text())
    return found[1] if found else sys.exit(f"make_dist: {path} states no version")


def metadata(version, torch_version, arrow, licences):
    lines = ["Metadata-Version: 2.4", "Name: braid-engine", f"Version: {version}",
             "Summary: RLHF training that plans itself: the programs braid and braid-engine, on the installed torch",
             "License-Expression: Apache-2.0", *(f"License-File: {name}" for name in licences), "Requires-Python: >=3.9",
             f"Requires-Dist: torch=={torch_version}"]
    if arrow:
        major = int(version_in(arrow / "_generated_version.py", r"version = '(\d+)\."))
        lines += ["Provides-Extra: parquet", f'Requires-Dist: pyarrow<{major + 1},>={major}; extra == "parquet"']
    return "\n".join(lines) + "\n\n" + (ROOT / "README.md").read_text()


def write_wheel(tree, path, record):
    """Zips a tree with its RECORD, as the wheel specification says; equal trees give equal bytes."""
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for source in sorted(source for source in tree.rglob("*") if source.is_file()):
            name, data = source.relative_to(tree).as_posix(), source.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
            write_member(file, name, data, 0o755 if os.access(source, os.X_OK) else 0o644)
        write_member(file, record, "\n".join([*rows, f"{record},,", ""]).encode(), 0o644)


def write_member(file, name, data, mode):
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    member.external_attr = (0o100000 | mode) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(member, data)


def write_info(info, version, tag, torch, arrow, libraries):
    """The folder .dist-info: what the wheel is, needs and starts, and the licences of all that it holds."""
    packages = sorted({*LINKED_IN_WHEEL, *map(package_of, libraries.values())})
    licences = {"LICENSE": (ROOT / "LICENSE").read_text(), **{f"{package}.txt": licence_of(package) for package in packages}}
    (info / "licenses").mkdir(parents=True)
    for name, text in licences.items():
        (info / "licenses" / name).write_text(text)
    torch_version = version_in(torch / "version.py", r"__version__ = '([0-9.]+)")
    (info / "METADATA").write_text(metadata(version, torch_version, arrow, licences))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: braid make_dist\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\nbraid = {PACKAGE}:main\n")
    return torch_version


def make_wheel(build, out, version, tag):
    torch = Path((ROOT / ".deps/torch_dir").read_text().strip())
    arrow_text = (ROOT / ".deps/arrow_dir").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        said("cmake", "--install", build, "--component", "wheel", "--strip", "--prefix", tree)
        package = tree / PACKAGE
        libraries = bundled_libraries([build / "braid", build / "braid-engine"], torch)
        (package / "libs").mkdir()
        for name, file in libraries.items():
            shutil.copy(file, package / "libs" / name)
        check([file for file in package.rglob("*") if file.is_file()])
        arrow = Path(arrow_text) if (package / "libbraid_arrow.so").exists() else None
        torch_version = write_info(tree / f"{PACKAGE}-{version}.dist-info", version, tag, torch, arrow, libraries)
        launcher = (ROOT / "tools/wheel_launcher.py").read_text()
        (package / "__init__.py").write_text(launcher.replace("@TORCH@", torch_version))
        path = out / f"{PACKAGE}-{version}-{tag}.whl"
        write_wheel(tree, path, f"{PACKAGE}-{version}.dist-info/RECORD")
    print(f"{path}: torch {torch_version}; bundled: {' '.join(sorted(libraries))}")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2] if len(sys.argv) == 3 else ROOT / "dist")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    version, machine = said(build / "braid", "--version").split()[1], platform.machine()
    print(make_planner(build, out, f"braid-{version}-linux-{machine}"))
    glibc = "_".join(map(str, check_symbols.LIMITS["GLIBC"]))
    make_wheel(build, out, version, f"py3-none-manylinux_{glibc}_{machine}")


if __name__ == "__main__":
    main()

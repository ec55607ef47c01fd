#!/usr/bin/env python3
"""Checks the includes under src/ against tools/layers.toml: no undeclared module, no cycle, no include without an edge, no edge
without an include, and no libtorch, file, clock or thread header on the plan side. Every source opens the namespace of its module,
and every type has a name of its own: two of one name and namespace in one program break C++'s one-definition rule without a word,
and two of one name are hard to tell apart. Exits non-zero with one line per violation."""
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
TORCH = re.compile(r'#include [<"](torch|ATen|c10)/')
OUTSIDE = re.compile(r"#include <(fstream|filesystem|chrono|ctime|time\.h|thread|mutex|future|unistd\.h|fcntl\.h|sys/)")
MAY_USE_THREADS = {"optimize"}
TYPE = re.compile(r"(?:template.*> )?(?:struct|class|enum class|enum|union) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : [^;]*)? ?\{")
ALIAS = re.compile(r"(?:template.*> )?using (\w+) =")
LOG = "base/log.cc"  # its lines carry the time of day
THREADS = re.compile(r"#include <(thread|mutex|future)")


def read_layers(path):
    """Returns ({module: [direct edges]}, set of plan-side modules, {module: [modules that it may not see although it could]})."""
    edges, plan, never, section = {}, set(), {}, None
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line:
            name, value = (part.strip() for part in line.split("=", 1))
            name = name.strip('"')
            (never if section == "never" else edges)[name] = re.findall(r'"([\w/]+)"', value)
            if section == "plan":
                plan.add(name)
    return edges, plan, never


def closure(edges, name, trail=()):
    """All modules that `name` may include; a cycle is a ValueError."""
    if name in trail:
        raise ValueError("cycle: " + " -> ".join([*trail, name]))
    seen = set()
    for edge in edges[name]:
        seen |= {edge} | closure(edges, edge, (*trail, name))
    return seen


def module_of(path, edges):
    """The module of a source by its path below src/: the folder that is declared, deepest first."""
    parts = path.split("/")[:-1]
    return next(("/".join(parts[:n]) for n in range(len(parts), 0, -1) if "/".join(parts[:n]) in edges), parts[0] if parts else "")


def includes(path, edges):
    """Yields (line number, module) of each include of a module."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := re.match(r'#include "(\w+/[^"]+)"', line):
            yield number, module_of(found[1], edges)


def check_file(path, module, edges, allowed, plan):
    """Yields the violations of one source file."""
    for number, other in includes(path, edges):
        if other != module and other not in allowed:
            yield f"{path}:{number}: {module} may not include {other} (tools/layers.toml)"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if module not in plan or path.name.endswith("_test.cc"):
            continue
        if TORCH.match(line):
            yield f"{path}:{number}: the plan side may not see libtorch"
        if OUTSIDE.match(line) and not path.as_posix().endswith(LOG) and not (module in MAY_USE_THREADS and THREADS.match(line)):
            yield f"{path}:{number}: the plan side has no files, clocks or threads"


def sources(folder):
    return [path for path in sorted(folder.rglob("*")) if path.suffix in (".h", ".cc")]


def by_module(root, edges):
    """{module: its sources}."""
    found = defaultdict(list)
    for path in sources(root / "src"):
        found[module_of(path.relative_to(root / "src").as_posix(), edges)].append(path)
    return found


def unused_edges(edges, files):
    """Yields the declared edges along which no file includes anything."""
    for module, targets in edges.items():
        used = {other for path in files[module] for _, other in includes(path, edges)}
        for target in targets:
            if target not in used:
                yield f"tools/layers.toml: {module} includes nothing of {target}"


def types_of(text):
    """The qualified names of the types, and of other names for types, that a source defines outside unnamed namespaces; not nested ones."""
    scopes = []
    for line in text.splitlines():
        if scope := re.match(r"(?:inline )?namespace ?([\w: ]*?) ?\{", line):
            scopes.append(re.sub(r"::inline \w+", "", scope[1]))
        elif re.match(r"\}\s*// namespace", line) and scopes:
            scopes.pop()
        elif "" not in scopes:
            found = TYPE.match(line) or ALIAS.match(line)
            if found:
                yield "::".join([*scopes, found[1]])


def namespaces(files):
    """Yields what opens another namespace than its module's: braid::NAME, where names need the prefix, or braid::inline NAME, where
    they do not. Names of two modules are then never one symbol. Types of another module may be declared in its namespace."""
    for module, paths in sorted(files.items()):
        own = re.compile(r"namespace braid::(inline )?" + module.replace("/", "_") + r"\b")
        for path in paths:
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                declares = number < len(lines) and re.fullmatch(r"(class|struct) \w+;", lines[number])
                if re.match(r"namespace braid\b", line) and not own.match(line) and not declares:
                    yield f"{path}:{number}: the namespace of {module} is braid::inline {module.replace('/', '_')}"


def repeated_types(root):
    """Yields the types that two files define under one name."""
    where = defaultdict(set)
    for folder in ("src", "apps"):
        for path in sources(root / folder):
            for name in types_of(path.read_text(encoding="utf-8")):
                where[name].add(path.relative_to(root).as_posix())
    for name, files in sorted(where.items()):
        if len(files) > 1:
            yield f"{name} is defined in {' and '.join(sorted(files))}: one of them needs another name"


def violations(root):
    edges, plan, never = read_layers(root / "tools" / "layers.toml")
    for module, targets in [*edges.items(), *never.items()]:
        for target in targets:
            if target not in edges:
                yield f"tools/layers.toml: {module} depends on undeclared module {target}"
                return
    try:
        allowed = {module: closure(edges, module) - set(never.get(module, ())) for module in edges}
    except ValueError as error:
        yield f"tools/layers.toml: {error}"
        return
    files = by_module(root, edges)
    for module in sorted(files):
        if module not in edges:
            yield f"src/{module}: module is not declared in tools/layers.toml"
            continue
        for path in files[module]:
            yield from check_file(path, module, edges, allowed[module], plan)
    yield from unused_edges(edges, files)
    yield from namespaces(files)
    yield from repeated_types(root)


if __name__ == "__main__":
    found = list(violations(ROOT))
    print("\n".join(found) or "layers: ok")
    sys.exit(1 if found else 0)

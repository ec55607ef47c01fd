#!/usr/bin/env python3
"""Counts the structure of a tree: its rooms (modules of tools/layers.toml, and apps), the arrows between them, and walks.

A walk follows one parameter through the code, as FILE:FUNCTION:PARAMETER names it: from the function into every one that the parameter,
or a member of it, is handed to, in the order of the text. It counts the rooms that it enters, its moves from room to room, and how
many of those climb to a room of a higher floor: what one has to hold in mind who reads along. A floor is the longest chain of arrows
below a room. Calls are found by their names, as text: of functions of one name that which the file includes, or its room or the nearest
below has; a call through an interface or a callback ends the walk there.

Usage: count_rooms.py [ROOT] [WALK...]      without walks: WALKS, as far as the tree has them
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

from check_layers import by_module, closure, includes, read_layers, sources

WALKS = ("create:config", "load_roles:config", "plan_inputs:planning", "simulate_plan:problem", "compile:problem", "verify:program")
APPS = "apps"
# A definition at the left margin, as clang-format writes it: result, name, parameters, opening brace.
DEFINITION = re.compile(r"^(?!namespace|class|struct|enum|#|using|extern)[A-Za-z_][\w:<>,&*\[\]\s]*?\b([\w:]+)\(([^;{}]*?)\)(?:\s*const)?(?:\s*override)?(?:\s*:\s[^;{]*)?\s*\{$", re.M)
CALL = re.compile(r"\b(?:([A-Z]\w*) )?([A-Za-z_]\w*)\(")  # a function, or a variable of a type: its constructor


class Function:
    def __init__(self, path, room, name, parameters, body):
        self.path, self.room, self.name, self.parameters, self.body = path, room, name, parameters, body


def plain(text):
    """Without comments, and with empty strings."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*", "", text))


def parts(text):
    """What commas separate outside of brackets."""
    out, depth, begin = [], 0, 0
    for at, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>" and text[at - 1 : at + 1] != "->")
        if c == "," and depth == 0:
            out.append(text[begin:at])
            begin = at + 1
    return [part.strip() for part in [*out, text[begin:]] if part.strip()]


def closing(text, begin):
    """Where the bracket that opens before `begin` closes."""
    depth = 1
    for at in range(begin, len(text)):
        depth += (text[at] in "({") - (text[at] in ")}")
        if depth == 0:
            return at
    return len(text)


def functions_of(path, room):
    text = plain(path.read_text(encoding="utf-8"))
    for found in DEFINITION.finditer(text):
        names = [re.sub(r"\s*=.*", "", part) for part in parts(found[2])]
        names = [word[-1] for name in names if (word := re.findall(r"\w+", name))]
        yield Function(path, room, found[1].split("::")[-1], names, text[found.end() : closing(text, found.end())])


class Tree:
    def __init__(self, root):
        self.root = root
        self.edges, *_ = read_layers(root / "tools" / "layers.toml")
        self.files = {room: [path for path in paths if "_test." not in path.name] for room, paths in by_module(root, self.edges).items()}
        self.files[APPS] = [path for path in sources(root / "apps") if "_test." not in path.name]
        self.below = {room: closure(self.edges, room) for room in self.edges}
        self.below[APPS] = set(self.edges)
        self.functions = defaultdict(list)
        for room, paths in self.files.items():
            for path in paths:
                for function in functions_of(path, room):
                    self.functions[function.name].append(function)
        self.arrows = {(room, other) for room, paths in self.files.items() for path in paths for _, other in includes(path, self.edges)
                       if other != room and other in self.edges}
        self.floors = {}
        self.named = {path: {Path(name).stem for name in re.findall(r'#include "([^"]+)"', path.read_text())} for paths in self.files.values() for path in paths}

    def floor(self, room):
        if room not in self.floors:
            self.floors[room] = 1 + max((self.floor(other) for at, other in self.arrows if at == room), default=0)
        return self.floors[room]

    def callee(self, caller, name, arguments):
        """The function that a call means; None where that is not to be seen."""
        known = [f for f in self.functions.get(name, ()) if len(f.parameters) >= arguments]
        for near in (lambda f: f.path == caller.path,
                     lambda f: f.path.stem in self.named[caller.path] and f.room in {caller.room, *self.below[caller.room]},
                     lambda f: f.room == caller.room):
            if fit := [f for f in known if near(f)]:
                return min(fit, key=lambda f: (len(f.parameters), str(f.path)))
        below = [f for f in known if f.room in self.below[caller.room]]
        return below[0] if len({f.room for f in below}) == 1 else None

    def stays(self, function, parameter, seen):
        """The functions that a parameter comes to, in order."""
        yield function
        place = re.compile(rf"(?:std::move\()?[*&]?{parameter}(?:(?:\.|->)\w+(?:\(\))?)*\)?")
        for call in CALL.finditer(function.body):
            arguments = parts(function.body[call.end() : closing(function.body, call.end())])
            for at, argument in enumerate(arguments):
                if not place.fullmatch(argument):
                    continue
                callee = self.callee(function, call[1] or call[2], len(arguments))
                if callee is not None and at < len(callee.parameters) and (callee.path, callee.name, at) not in seen:
                    seen.add((callee.path, callee.name, at))
                    yield from self.stays(callee, callee.parameters[at], seen)

    def walk(self, start, parameter):
        functions = list(self.stays(start, parameter, set()))
        rooms = [f.room for f in functions]
        moves = [(a, b) for a, b in zip(rooms, rooms[1:]) if a != b]
        climbs = sum(self.floor(b) > self.floor(a) for a, b in moves)
        return len(functions), len({f.path for f in functions}), len(set(rooms)), len(moves), climbs


def starts(tree, walk):
    """The functions that a walk may begin in: FUNCTION:PARAMETER, or with the end of a file's path before it."""
    *place, name, parameter = walk.split(":")
    return [f for f in tree.functions.get(name, ()) if parameter in f.parameters and (not place or f.path.as_posix().endswith(place[0]))]


def report(root, walks):
    tree = Tree(root)
    largest = max((room for room in tree.files), key=lambda room: len(tree.files[room]))
    yield (f"rooms {len(tree.files)}, the largest {largest} with {len(tree.files[largest])} files; arrows between them {len(tree.arrows)}, "
           f"{sum(len(edges) for edges in tree.edges.values())} of them declared; floors {max(tree.floor(room) for room in tree.files)}")
    rows = [(walk, *tree.walk(start, walk.split(":")[-1])) for walk in walks for start in starts(tree, walk)]
    best = {}
    for row in rows:  # of namesakes the longest walk
        best[row[0]] = max(best.get(row[0], row), row, key=lambda each: each[1])
    yield f"{'walk':24}{'functions':>10}{'files':>7}{'rooms':>7}{'moves':>7}{'climbs':>8}"
    functions, moves, climbs = (sum(row[at] for row in best.values()) for at in (1, 4, 5))
    for walk, *numbers in [*best.values(), ("all", functions, "", "", moves, climbs)]:
        yield f"{walk:24}" + "".join(f"{number:>{width}}" for number, width in zip(numbers, (10, 7, 7, 7, 8)))


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    given = sys.argv[1:]
    root = Path(given.pop(0)) if given and Path(given[0]).is_dir() else here
    print("\n".join(report(root, given or WALKS)))

#!/usr/bin/env python3
"""Draws a step of PPO as a graph, an SVG: calls as boxes, coloured by the model that they use, and what waits for what. Calls and
waits are those that `braid train --print-program` prints. Its colours follow the reader's light or dark setting.

Usage: plot_graph.py BRAID OUT.svg [--check]     --check writes nothing and fails where OUT.svg is another
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ["train", "examples/algorithms/toy.yaml", "algorithm.name=ppo", "--print-program"]
LINE = re.compile(r"^ +(\d+) +(call|region_begin|region_end|share|exchange) (\w+)(?: \((\w+)(?: (\w+))?)?.*?(?: after ([\d ]+))?$")
ROLES = {"actor": "c0", "critic": "c1", "reference": "c2", "": "c3"}
WORDS = {"fetch": "prompts from the data", "generate": "responses", "reward": "scores of the responses", "old_logprob": "log-probs, policy",
         "values": "expected rewards", "ref_logprob": "log-probs, reference", "advantages": "better than expected?", "update_critic": "optimizer steps",
         "update_actor": "optimizer steps"}
BOX_W, BOX_H, GAP_X, GAP_Y, LEFT, TOP = 142, 46, 44, 16, 16, 56
STYLE = """text { font-family: sans-serif; font-size: 13px; fill: #1f2328; text-anchor: middle } .small { font-size: 11px; fill: #57606a }
.left { text-anchor: start } .page { fill: #ffffff; stroke: #d0d7de } path { stroke: #57606a; fill: none } .head { fill: #57606a; stroke: none }
.c0 { fill: #cfe2f7 } .c1 { fill: #f6d9c2 } .c2 { fill: #d3eedd } .c3 { fill: #e6e8eb }"""
DARK = """text { fill: #e6edf3 } .small { fill: #9da7b1 } .page { fill: #0d1117; stroke: #30363d } path { stroke: #9da7b1 } .head { fill: #9da7b1 }
.c0 { fill: #1f3b5c } .c1 { fill: #5c3a1f } .c2 { fill: #1f4d33 } .c3 { fill: #30363d }"""


def steps(braid):
    """{call: (role, calls that it waits for)} in the order of the list."""
    text = subprocess.run([braid, *COMMAND], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    call_of, waits, roles = {}, {}, {}
    for number, kind, name, _, role, after in (match.groups("") for match in map(LINE.match, text.splitlines()) if match):
        before = {call for at in after.split() for call in call_of.get(int(at), ())}
        call_of[int(number)] = before if kind in ("share", "exchange") else {name}
        if kind in ("call", "region_begin"):
            roles[name], waits[name] = role if role in ROLES else "", before
    return {name: (roles[name], waits[name]) for name in waits}


def direct(calls):
    """Waits that do not follow from others."""
    def all_before(name):
        return {before for first in calls[name][1] for before in {first, *all_before(first)}}
    return {name: {b for b in waits if not any(b in all_before(other) for other in waits - {b})} for name, (_, waits) in calls.items()}


def places(calls, waits):
    """{call: (column, row)}: the column is the longest way to it."""
    columns, rows, used = {}, {}, {}
    for name in calls:
        columns[name] = max((columns[before] + 1 for before in waits[name]), default=0)
        rows[name] = used.get(columns[name], 0)
        used[columns[name]] = rows[name] + 1
    tallest = max(used.values())
    return {name: (columns[name], rows[name] + (tallest - used[columns[name]]) / 2) for name in calls}, tallest


def picture(calls):
    waits = direct(calls)
    at, tallest = places(calls, waits)
    x, y = lambda name: LEFT + at[name][0] * (BOX_W + GAP_X), lambda name: TOP + at[name][1] * (BOX_H + GAP_Y)
    width = max(x(name) for name in calls) + BOX_W + LEFT
    height = TOP + tallest * (BOX_H + GAP_Y) + 34
    body = []
    for name in calls:
        for before in sorted(waits[name]):
            x0, y0, x1, y1 = x(before) + BOX_W, y(before) + BOX_H / 2, x(name) - 7, y(name) + BOX_H / 2
            bend = (x1 - x0) / 2
            body.append(f'<path d="M{x0:.0f},{y0:.0f} C{x0 + bend:.0f},{y0:.0f} {x1 - bend:.0f},{y1:.0f} {x1:.0f},{y1:.0f}"/>')
            body.append(f'<path class="head" d="M{x1 + 7:.0f},{y1:.0f} l-8,-4 v8 z"/>')
    for name, (role, _) in calls.items():
        body.append(f'<rect class="{ROLES[role]}" x="{x(name):.0f}" y="{y(name):.0f}" width="{BOX_W}" height="{BOX_H}" rx="6"/>')
        body.append(f'<text x="{x(name) + BOX_W / 2:.0f}" y="{y(name) + 19:.0f}">{name}</text>')
        body.append(f'<text class="small" x="{x(name) + BOX_W / 2:.0f}" y="{y(name) + 36:.0f}">{WORDS[name]}</text>')
    for index, (role, style) in enumerate(ROLES.items()):
        body.append(f'<rect class="{style}" x="{LEFT + 120 * index}" y="{height - 28}" width="16" height="14" rx="3"/>')
        body.append(f'<text class="small left" x="{LEFT + 120 * index + 22}" y="{height - 17}">{role or "no model of its own"}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" role="img">'
    title = f'<text class="left" x="{LEFT}" y="30" style="font-weight: 600; font-size: 15px">A step of PPO: what runs, and what waits for what</text>'
    style = f"<style>{STYLE} @media (prefers-color-scheme: dark) {{ {DARK} }}</style>"
    return "\n".join([head, style, f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1:.0f}" rx="8"/>', title, *body, "</svg>"]) + "\n"


def main(draw):
    """Writes what `draw` makes of BRAID's path to OUT.svg, or compares."""
    out, drawn = Path(sys.argv[2]), draw(Path(sys.argv[1]).resolve())
    if "--check" in sys.argv:
        if not out.exists() or out.read_text() != drawn:
            sys.exit(f"{out}: is not what {sys.argv[0]} draws; run it without --check")
    else:
        out.write_text(drawn)


if __name__ == "__main__":
    main(lambda braid: picture(steps(braid)))

#!/usr/bin/env python3
"""Three short runs of examples/algorithms/toy.yaml, one that is well and two that are not, and their curves: the picture of
docs/reading_a_run.md. Half a minute on two cores. Standard library only.

Usage: plot_good_bad.py BRAID EVIDENCE.json OUT.svg [RUNS]   trains and draws; RUNS: folder that keeps the runs
       plot_good_bad.py --draw EVIDENCE.json OUT.svg         draws
       plot_good_bad.py --check EVIDENCE.json OUT.svg        fails where the picture is not that of the evidence, or the evidence not of the
                                                             commands that the page prints
"""
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reading_a_run.md"
COMMAND = ["train", "examples/algorithms/toy.yaml", "algorithm.name=grpo"]
RUNS = {"good": [], "learning rate too high": ["optim.actor.lr=0.05"],
        "nothing to learn from": ["reward=[{type: rule, rule: contains, pattern: zebra}]"]}
ENDS_EARLY = "train.max_idle_steps"  # what the third run says, with exit code 1
PANELS = [("reward/raw_mean", "reward", 0, 1), ("policy/entropy", "entropy, nats", 0, 4), ("adv/zero_std_frac", "groups without a signal", 0, 1)]
COLORS = {"good": "#2ca02c", "learning rate too high": "#d62728", "nothing to learn from": "#1f77b4"}
WIDTH, HEIGHT, LEFT, TOP, GAP, STEPS = 250, 180, 40, 40, 60, 30


def trained(braid, folder, name, keys):
    """What the evidence keeps of one run: its keys and curves, a number for each step."""
    run = name.replace(" ", "_")
    done = subprocess.run([braid, *COMMAND, f"run.dir={folder}", f"run.name={run}", *keys], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0 and ENDS_EARLY not in done.stderr:
        sys.exit(f"{name}: {done.stderr}")
    rows = [json.loads(line) for line in (Path(folder) / run / "metrics.jsonl").read_text().splitlines()]
    return {"run": name, "keys": keys, "curves": {metric: [row[metric] for row in rows] for metric, *_ in PANELS}}


def train(braid, folder):
    with tempfile.TemporaryDirectory() as own:
        return {"runs": [trained(braid, folder or own, name, keys) for name, keys in RUNS.items()]}


def printed_keys():
    """The keys of the commands that the page prints for the picture."""
    section = PAGE.read_text().split("## Good and bad curves")[1].split("\n## ")[0]
    commands = [shlex.split(line)[1:] for line in section.splitlines() if line.startswith("braid train ")]
    return [command[len(COMMAND):] for command in commands if command[:len(COMMAND)] == COMMAND]


def panel(curves, title, low, high, x0):
    x, y = lambda step: x0 + WIDTH * step / (STEPS - 1), lambda value: TOP + HEIGHT * (1 - (value - low) / (high - low))
    out = [f'<text x="{x0}" y="{TOP - 12}" font-weight="bold">{title}</text>',
           f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for value in (low, (low + high) / 2, high):
        out.append(f'<text x="{x0 - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in (0, 10, 20, 29):
        out.append(f'<text x="{x(step):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{step}</text>')
    for name, curve in curves.items():
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(curve))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="2"/>')
    return out


def legend():
    out = []
    for at, (name, color) in enumerate(COLORS.items()):
        x, y = LEFT + 200 * at, TOP + HEIGHT + 40
        out += [f'<line x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="3"/>', f'<text x="{x + 26}" y="{y + 4}">{name}</text>']
    return out


def drawn(runs):
    body = []
    for at, (metric, title, low, high) in enumerate(PANELS):
        body += panel({run["run"]: run["curves"][metric] for run in runs}, title, low, high, LEFT + at * (WIDTH + GAP))
    width, height = LEFT + 3 * (WIDTH + GAP), TOP + HEIGHT + 56
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, *legend(), "</svg>"]) + "\n"


def check(runs, evidence, picture):
    if [run["keys"] for run in runs] != printed_keys():
        sys.exit(f"{evidence} is of other commands than {PAGE.name} prints; tools/make_docs.sh runs them again")
    if Path(picture).read_text() != drawn(runs):
        sys.exit(f"{picture} shows other numbers than {evidence}; tools/make_docs.sh draws it again")


def main():
    way, evidence, picture, *folder = sys.argv[1:]
    if not way.startswith("--"):
        Path(evidence).write_text(json.dumps(train(way, folder[0] if folder else None)) + "\n")
    runs = json.loads(Path(evidence).read_text())["runs"]
    if way == "--check":
        check(runs, evidence, picture)
    else:
        Path(picture).write_text(drawn(runs))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains three short runs of examples/algorithms/toy.yaml, one that is well and two that are not, and draws their curves: the picture of
docs/reading_a_run.md. Half a minute on two cores.

Usage: plot_good_bad.py BRAID OUT.svg [RUNS]        RUNS: folder that keeps the runs
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = {"good": [], "learning rate too high": ["optim.actor.lr=0.05"],
        "nothing to learn from": ["reward=[{type: rule, rule: contains, pattern: zebra}]"]}
PANELS = [("reward/raw_mean", "reward", 0, 1), ("policy/entropy", "entropy, nats", 0, 4), ("adv/zero_std_frac", "groups without a signal", 0, 1)]
COLORS = {"good": "#2ca02c", "learning rate too high": "#d62728", "nothing to learn from": "#1f77b4"}
WIDTH, HEIGHT, LEFT, TOP, GAP, STEPS = 250, 180, 40, 40, 60, 30


def rows(braid, folder, name, keys):
    run = name.replace(" ", "_")
    # Ends with code 1 where nothing is learnt for so many steps.
    subprocess.run([braid, "train", "examples/algorithms/toy.yaml", "algorithm.name=grpo", f"run.dir={folder}", f"run.name={run}", *keys],
                   cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in (Path(folder) / run / "metrics.jsonl").read_text().splitlines()]


def panel(curves, title, low, high, x0):
    x, y = lambda step: x0 + WIDTH * step / (STEPS - 1), lambda value: TOP + HEIGHT * (1 - (value - low) / (high - low))
    out = [f'<text x="{x0}" y="{TOP - 12}" font-weight="bold">{title}</text>',
           f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for value in (low, (low + high) / 2, high):
        out.append(f'<text x="{x0 - 5}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in (0, 10, 20, 29):
        out.append(f'<text x="{x(step):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{step}</text>')
    for name, curve in curves.items():
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in curve)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="2"/>')
    return out


def legend():
    out = []
    for at, (name, color) in enumerate(COLORS.items()):
        x, y = LEFT + 200 * at, TOP + HEIGHT + 40
        out += [f'<line x1="{x}" x2="{x + 20}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="3"/>', f'<text x="{x + 26}" y="{y + 4}">{name}</text>']
    return out


def main():
    with tempfile.TemporaryDirectory() as own:
        folder = sys.argv[3] if len(sys.argv) > 3 else own
        runs = {name: rows(sys.argv[1], folder, name, keys) for name, keys in RUNS.items()}
    body = []
    for at, (metric, title, low, high) in enumerate(PANELS):
        curves = {name: [(row["step"], row[metric]) for row in run] for name, run in runs.items()}
        body += panel(curves, title, low, high, LEFT + at * (WIDTH + GAP))
    width, height = LEFT + 3 * (WIDTH + GAP), TOP + HEIGHT + 56
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    Path(sys.argv[2]).write_text("\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, *legend(), "</svg>"]) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws the curves of docs/evidence/quickstart.json as an SVG: gold and learnt reward over the steps of PPO, one line per seed.

Usage: plot_quickstart.py EVIDENCE.json OUT.svg [--check]      --check fails where OUT.svg shows other numbers
       plot_quickstart.py EVIDENCE.json --table                prints the same runs as a Markdown table
(standard library only)
"""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 240, 55, 40, 90
COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]
PANELS = [("reward/gold_mean", "gold reward (answer exactly right)"), ("reward/learnt_mean", "learnt reward (what PPO sees)")]
SMOOTH = 5  # steps of the moving mean


def smoothed(values):
    return [sum(values[max(0, i - SMOOTH + 1) : i + 1]) / len(values[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(values))]


def ticks(low, high, count=5):
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def panel(runs, name, title, x0):
    """One diagram with axes, as SVG elements."""
    curves = [smoothed(run["curves"][name]) for run in runs]
    low, high = (0.0, 1.0) if name == "reward/gold_mean" else (min(map(min, curves)), max(map(max, curves)))
    steps = max(map(len, curves))
    x = lambda step: x0 + WIDTH * step / max(steps - 1, 1)
    y = lambda value: TOP + HEIGHT * (1 - (value - low) / (high - low))
    out = [f'<text x="{x0}" y="{TOP - 14}" font-weight="bold">{title}</text>',
           f'<rect x="{x0}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for value in ticks(low, high):
        out.append(f'<line x1="{x0}" x2="{x0 + WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for step in ticks(0, steps - 1):
        out.append(f'<text x="{x(step):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{step:.0f}</text>')
    for seed, curve in enumerate(curves):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(curve))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[seed % len(COLORS)]}" stroke-width="1.8"/>')
    return out


def legend(names):
    out = []
    for seed, name in enumerate(names):
        x = LEFT + 90 * seed
        out.append(f'<line x1="{x}" x2="{x + 20}" y1="{TOP + HEIGHT + 42}" y2="{TOP + HEIGHT + 42}" stroke="{COLORS[seed % len(COLORS)]}" stroke-width="3"/>')
        out.append(f'<text x="{x + 26}" y="{TOP + HEIGHT + 46}">{name}</text>')
    return out


def table(runs):
    yield "| seed | gold after SFT | gold after PPO | rise | reward model: pairs in order | seconds SFT / RM / PPO |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        seconds = " / ".join(f"{run['seconds'][phase]:.0f}" for phase in ("sft", "rm", "ppo"))
        rise = run["gold_after_ppo"] - run["gold_after_sft"]
        yield f"| {run['run'].removeprefix('seed')} | {run['gold_after_sft']:.3f} | {run['gold_after_ppo']:.3f} | {rise:+.3f} | {run['rm_accuracy']:.3f} | {seconds} |"


def main():
    runs = json.load(open(sys.argv[1], encoding="utf-8"))["runs"]
    if sys.argv[2] == "--table":
        print("\n".join(table(runs)))
        return
    width, height = LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 60
    body = []
    for i, (name, title) in enumerate(PANELS):
        body += panel(runs, name, title, LEFT + i * (WIDTH + GAP))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    lines = [head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, *legend([run["run"] for run in runs]), "</svg>"]
    text = "\n".join(lines) + "\n"
    if "--check" not in sys.argv:
        open(sys.argv[2], "w", encoding="utf-8").write(text)
    elif open(sys.argv[2], encoding="utf-8").read() != text:
        sys.exit(f"{sys.argv[2]} shows other numbers than {sys.argv[1]}; tools/make_docs.sh draws it again")


if __name__ == "__main__":
    main()

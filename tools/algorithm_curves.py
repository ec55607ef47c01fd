#!/usr/bin/env python3
"""Runs every command that docs/algorithms.md prints with three seeds and draws what each is to improve, a panel for each algorithm and a line
for each seed. Standard library only.

Usage: algorithm_curves.py BRAID EVIDENCE.json OUT.svg   runs and draws; algorithms that the evidence has already are not run again
       algorithm_curves.py --draw EVIDENCE.json OUT.svg  draws
       algorithm_curves.py --check EVIDENCE.json OUT.svg exit code 1 where the picture is not that of the evidence, or lacks a command
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "algorithms.md"
SEEDS = (1, 2, 3)
METRICS = {"rm squared_error": "rm/error_abs_mean", "rm": "rm/accuracy", "dpo": "dpo/accuracy", "orpo": "orpo/accuracy", "kto": "kto/accuracy", "distill": "distill/reverse_kl"}
# Keys whose value makes another variant of an algorithm.
VARIANTS = ("algorithm.reward_loss", "algorithm.preference_loss", "algorithm.label_smoothing", "critic.shared_trunk", "reference.ema")
# Those of which a command uses what they train.
BEFORE = {"distill": ["grpo"], "reward_models": ["rm pairwise", "rm squared_error"]}
COLUMNS, WIDTH, HEIGHT, GAP_X, GAP_Y, LEFT, TOP, SMOOTH = 5, 165, 90, 40, 50, 40, 30, 3
COLORS = ["#1f77b4", "#d62728", "#2ca02c"]


def title(words):
    """The algorithm's name and what else of it a command chooses: `dpo ipo`, `ppo shared_trunk`."""
    settings = dict(word.split("=", 1) for word in words[2:])
    chosen = [value if value.replace("_", "").isalpha() and value != "true" else key.split(".")[-1] for key, value in settings.items() if key in VARIANTS]
    return " ".join([settings.get("algorithm.name") or Path(words[1]).stem, *chosen])


def commands():
    """Words of the printed commands behind `braid`, by title, in the order of the page."""
    out = {}
    for line in re.findall(r"^build/braid (train examples/algorithms/.*)$", PAGE.read_text(), re.M):
        words = line.split()
        if out.setdefault(title(words), words) != words:
            sys.exit(f"{PAGE}: two commands are '{title(words)}': {line}; name the key that tells them apart in VARIANTS")
    return out


def metric(name):
    return METRICS.get(name) or METRICS.get(name.split()[0], "reward/raw_mean")


def train(braid, words, folder, seed, *more):
    command = [braid, *words, f"run.dir={folder}", f"train.seed={seed}", "train.threads=1", "checkpoint.every_steps=0", *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def run(braid, words, folder, name, seed):
    label = f"{name.replace(' ', '-')}-{seed}"
    train(braid, words, folder, seed, f"run.name={label}")
    rows = [json.loads(line) for line in (folder / label / "metrics.jsonl").read_text().splitlines()]
    return [round(row[metric(name)], 5) for row in rows], sum(row["time/step"] for row in rows)


def after_others(braid, name, words, folder):
    """Runs what the page prints before the command, and has its configuration read what that trained."""
    if name not in BEFORE:
        return words
    for other in BEFORE[name]:
        train(braid, commands()[other], folder, 0)
    config = folder / Path(words[1]).name
    config.write_text((ROOT / words[1]).read_text().replace("runs/algorithms", str(folder)))
    return [words[0], str(config), *words[2:]]


def curves_of(braid, name, words, folder):
    adapted = after_others(braid, name, words, folder)
    found = [run(braid, adapted, folder, name, seed) for seed in SEEDS]
    print(f"{name:30} {metric(name)}: " + ", ".join(f"{curve[0]:.3f} to {curve[-1]:.3f}" for curve, _ in found) + f"; {sum(s for _, s in found):.0f} s", flush=True)
    return {"command": " ".join(words), "metric": metric(name), "seeds": list(SEEDS), "curves": [curve for curve, _ in found]}


def smoothed(values):
    return [sum(values[max(0, i - SMOOTH + 1) : i + 1]) / len(values[max(0, i - SMOOTH + 1) : i + 1]) for i in range(len(values))]


def panel(name, entry, x0, y0):
    curves = [smoothed(curve) for curve in entry["curves"]]
    low, high = min(0.0, *map(min, curves)), max(map(max, curves)) * 1.05
    steps = max(map(len, curves))
    x = lambda step: x0 + WIDTH * step / (steps - 1)
    y = lambda value: y0 + HEIGHT * (1 - (value - low) / (high - low))
    out = [f'<text x="{x0}" y="{y0 - 16}" font-weight="bold">{name}</text>', f'<text x="{x0}" y="{y0 - 4}" fill="#666">{entry["metric"]}</text>',
           f'<rect x="{x0}" y="{y0}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    for value in (low, high):
        out.append(f'<text x="{x0 - 4}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    out.append(f'<text x="{x0 + WIDTH}" y="{y0 + HEIGHT + 12}" text-anchor="end">{steps} steps</text>')
    for seed, curve in enumerate(curves):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(curve))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[seed]}" stroke-width="1.5"/>')
    return out


def picture(evidence):
    names = [name for name in commands() if name in evidence]
    rows = (len(names) + COLUMNS - 1) // COLUMNS
    width, height = LEFT + COLUMNS * (WIDTH + GAP_X), TOP + rows * (HEIGHT + GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for i, name in enumerate(names):
        out += panel(name, evidence[name], LEFT + i % COLUMNS * (WIDTH + GAP_X), TOP + i // COLUMNS * (HEIGHT + GAP_Y))
    return "\n".join([*out, "</svg>"]) + "\n"


def check(evidence, out):
    missing = [name for name, words in commands().items() if evidence.get(name, {}).get("command") != " ".join(words)]
    if missing:
        sys.exit(f"{PAGE}: no curves of the printed commands of {', '.join(missing)}; run tools/algorithm_curves.py")
    if out.read_text() != picture(evidence):
        sys.exit(f"{out} is not the picture of the evidence; run tools/algorithm_curves.py --draw")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    mode, file, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    evidence = json.loads(file.read_text()) if file.exists() else {}
    if mode == "--check":
        return check(evidence, out)
    if mode != "--draw":
        with tempfile.TemporaryDirectory() as temporary:
            for name, words in commands().items():
                if evidence.get(name, {}).get("command") == " ".join(words):
                    continue
                evidence[name] = curves_of(str(Path(mode).resolve()), name, words, Path(temporary))
                file.write_text(json.dumps(evidence) + "\n")
    out.write_text(picture(evidence))


if __name__ == "__main__":
    main()

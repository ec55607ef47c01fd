#!/usr/bin/env python3
"""Compares learning curves in f32 and bf16: the loss of SFT and the gold reward of GRPO, as means over 10 steps. Prints, per seed, the
largest and the mean difference of the two, and beside it the same between seeds of f32, the noise that no dtype can go below.
Exits non-zero where bf16 is farther from f32 at the end than f32's own seeds are from each other, or than LIMIT, if that is more.

Usage: compare_dtypes.py OUT.json SEED=F32_RUN,BF16_RUN [...]       (run folders with sft/ and grpo/; standard library only)
"""
import itertools
import json
import sys
from pathlib import Path

CURVES = {"sft": "sft/loss", "grpo": "reward/gold_mean"}
WINDOW = 10
LIMIT = 0.05


def curve(run, stage):
    rows = [json.loads(line) for line in open(Path(run) / stage / "metrics.jsonl", encoding="utf-8")]
    values = [row[CURVES[stage]] for row in rows]
    return [sum(values[i : i + WINDOW]) / len(values[i : i + WINDOW]) for i in range(0, len(values), WINDOW)]


def difference(a, b):
    """Largest, mean and last absolute difference of two curves."""
    apart = [abs(x - y) for x, y in zip(a, b)]
    return {"max": round(max(apart), 4), "mean": round(sum(apart) / len(apart), 4), "last": round(apart[-1], 4)}


def largest(differences):
    return {key: max(d[key] for d in differences) for key in ("max", "mean", "last")}


def show(name, d):
    print(f"  {name:24} max {d['max']:.4f}   mean {d['mean']:.4f}   at the end {d['last']:.4f}")


def compare(stage, runs):
    """Curves and differences of one stage over all seeds."""
    curves = {seed: {"f32": curve(f32, stage), "bf16": curve(bf16, stage)} for seed, (f32, bf16) in runs.items()}
    dtypes = {seed: difference(c["f32"], c["bf16"]) for seed, c in curves.items()}
    between = [difference(a["f32"], b["f32"]) for a, b in itertools.combinations(curves.values(), 2)]
    seeds = largest(between) if between else None
    print(f"{stage}: {CURVES[stage]}, means of {WINDOW} steps")
    for seed, d in dtypes.items():
        show(f"seed {seed}: bf16 - f32", d)
    if seeds:
        show("f32, largest of seeds", seeds)
    rounded = {seed: {dtype: [round(v, 4) for v in values] for dtype, values in c.items()} for seed, c in curves.items()}
    return {"curve": CURVES[stage], "curves": rounded, "bf16_from_f32": dtypes, "f32_between_seeds": seeds}


def main():
    out = sys.argv[1]
    runs = {seed: folders.split(",") for seed, folders in (argument.split("=") for argument in sys.argv[2:])}
    report = {stage: compare(stage, runs) for stage in CURVES}
    Path(out).write_text(json.dumps(report) + "\n", encoding="utf-8")
    between = report["grpo"]["f32_between_seeds"]
    allowed = max(LIMIT, between["last"]) if between else LIMIT
    worst = largest(list(report["grpo"]["bf16_from_f32"].values()))["last"]
    print(f"gold reward at the end: bf16 within {worst:.4f} of f32 (allowed {allowed:.4f}: {'ok' if worst <= allowed else 'missed'})")
    return 0 if worst <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())

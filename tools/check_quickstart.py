#!/usr/bin/env python3
"""Checks that PPO raised the gold reward (share of exactly right answers): the mean of the last 10 steps is above the level that
SFT left by at least the margin that the README states. The level is the mean over the steps whose samples come from the
untouched SFT model: those in which only the critic is trained, and the first one that trains the policy. Exits non-zero otherwise.

Usage: check_quickstart.py METRICS.jsonl [METRICS.jsonl ...]      (one file per seed; each must pass)
       check_quickstart.py --evidence OUT.json RUN [RUN ...]       (run folders with sft/, rm/ and ppo/; also writes curves)
"""
import json
import sys
from pathlib import Path

MARGIN = 0.08
COLUMNS = ["reward/gold_mean", "reward/learnt_mean", "kl/ref_k1"]


def read_rows(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def mean(values):
    return sum(values) / len(values)


def untouched_steps(rows):
    """Steps at the start whose samples the SFT model made; a step generates before it trains."""
    return 1 + next((i for i, row in enumerate(rows) if "policy/loss" in row), len(rows) - 1)


def levels(rows):
    """Gold reward after SFT and at the end of PPO."""
    gold = [row["reward/gold_mean"] for row in rows]
    return mean(gold[: untouched_steps(rows)]), mean(gold[-10:])


def check(name, rows):
    first, last = levels(rows)
    passed = last - first >= MARGIN
    print(f"{name}: gold reward {first:.3f} after SFT, {last:.3f} after PPO (margin {MARGIN}: {'ok' if passed else 'missed'})")
    return passed


def evidence(folder):
    """What docs/evidence keeps of one run: curves of PPO, accuracy of the reward model, seconds per stage."""
    stages = {stage: read_rows(Path(folder) / stage / "metrics.jsonl") for stage in ("sft", "rm", "ppo")}
    first, last = levels(stages["ppo"])
    return {
        "run": Path(folder).name,
        "gold_after_sft": round(first, 4),
        "gold_after_ppo": round(last, 4),
        "rm_accuracy": round(mean([row["rm/accuracy"] for row in stages["rm"][-100:]]), 4),
        "seconds": {stage: round(sum(row["time/step"] for row in rows), 1) for stage, rows in stages.items()},
        "curves": {name: [round(row[name], 4) for row in stages["ppo"]] for name in COLUMNS},
    }


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--evidence"]:
        out, runs = arguments[1], arguments[2:]
        Path(out).write_text(json.dumps({"margin": MARGIN, "runs": [evidence(run) for run in runs]}) + "\n", encoding="utf-8")
        arguments = [str(Path(run) / "ppo" / "metrics.jsonl") for run in runs]
    return 0 if all([check(path, read_rows(path)) for path in arguments]) else 1


if __name__ == "__main__":
    sys.exit(main())

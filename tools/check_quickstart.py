#!/usr/bin/env python3
"""Checks that PPO raised the gold reward: mean of the last 10 steps over mean of the first 5 by at least the margin that
the README states. Exits non-zero otherwise. Usage: check_quickstart.py METRICS.jsonl"""
import json
import sys

MARGIN = 0.1


def main():
    rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    gold = [row["reward/gold_mean"] for row in rows]
    first, last = sum(gold[:5]) / 5, sum(gold[-10:]) / 10
    print(f"gold reward: {first:.3f} at the start of PPO, {last:.3f} at its end (margin {MARGIN})")
    if last - first < MARGIN:
        print("the gold reward did not rise by the margin", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Prints what the pages show of a comparison with the peer (bench/peer.py --json), as Markdown.

Usage: peer_tables.py RESULTS.json --sides     times, memory and rates of both sides, how many times as good Braid is, and missed goals
       peer_tables.py RESULTS.json --within    the ratios that have no row there: Braid beside its bare GEMMs, beside work, in bf16
"""
import json
import sys
from pathlib import Path

from peer import GOALS

SIDES = [  # (what, program, field, digits, the ratio of rounds; none: that of the numbers)
    ("GRPO, s a step", "grpo", "step_s", 2, "grpo step, peer / Braid"), ("PPO, s a step", "ppo", "step_s", 2, "ppo step, peer / Braid"),
    ("GRPO, peak memory, MiB", "grpo", "rss_mib", 0, None), ("PPO, peak memory, MiB", "ppo", "rss_mib", 0, None),
    ("sampling in GRPO, tokens/s", "grpo", "gen_tokens_per_s", 0, "sampling, Braid / peer"),
    ("greedy generation, tokens/s", "greedy", "gen_tokens_per_s", 0, "greedy, Braid / peer"),
]
NAMES = {  # ratios without a row above, as a page calls them
    "step / bare products": "GRPO step / its bare GEMMs", "ppo step / bare products": "PPO step / its bare GEMMs",
    "greedy, first batch of a process / peer": "greedy, Braid's first batch of a process / peer",
    "grpo bf16 step, peer f32 / Braid": "GRPO step, peer in f32 / Braid in bf16",
    "ppo bf16 step, peer f32 / Braid": "PPO step, peer in f32 / Braid in bf16",
    "busy / quiet, Braid grpo": "Braid's GRPO step, beside a process that spins / alone",
}


def spread(out, ratio):
    """The median of the rounds and, where there are several, their extremes."""
    least, most = out["extremes"][ratio]
    return f"{out['ratios'][ratio]:.2f}" + (f" ({least:.2f} to {most:.2f})" if least != most else "")


def bound(goal):
    return ("≤ " if goal[1] == "max" else "≥ ") + str(goal[0])


def met(out, ratio, goal):
    return (out["ratios"][ratio] <= goal[0]) == (goal[1] == "max")


def side(out, program, field, digits, ratio):
    """Cells of one preset: peer, Braid, factor."""
    peer, braid = out["peer_" + program][field], out["braid_" + program][field]
    return [f"{peer:.{digits}f}", f"{braid:.{digits}f}", spread(out, ratio) if ratio else f"{peer / braid:.1f}"]


def goals(results):
    """One sentence: how many goals are met, and which are not."""
    held = [(name, out, goal) for (name, preset), goal in GOALS.items() for out in results
            if out["preset"] == preset and name in out["ratios"]]
    missed = [f"{NAMES.get(name, name)}, {out['ratios'][name]:.2f} with `{out['preset']}` (goal {bound(goal)})"
              for name, out, goal in held if not met(out, name, goal)]
    return f"Of the {len(held)} goals that were set for this comparison {len(held) - len(missed)} are met. **Missed**: " + "; ".join(missed) + "."


def sides(results):
    heads = [f"`{out['preset']}`: {who}" if who else "factor" for out in results for who in ("TRL", "Braid", "")]
    yield "| | " + " | ".join(heads) + " |\n|---" + len(heads) * "|---" + "|"
    for what, *row in SIDES:
        yield f"| {what} | " + " | ".join(cell for out in results for cell in side(out, *row)) + " |"
    yield "\n" + goals(results)


def within(results):
    yield "| | " + " | ".join(f"`{out['preset']}` | goal" for out in results) + " |\n|---" + 2 * len(results) * "|---" + "|"
    for ratio, name in NAMES.items():
        cells = []
        for out in results:
            goal = GOALS.get((ratio, out["preset"]))
            judged = "" if goal is None else bound(goal) + (": met" if met(out, ratio, goal) else ": **missed**")
            cells += [spread(out, ratio), judged] if ratio in out["ratios"] else ["", ""]
        yield f"| {name} | " + " | ".join(cells) + " |"


def main():
    results, way = json.loads(Path(sys.argv[1]).read_text()), {"--sides": sides, "--within": within}[sys.argv[2]]
    print("\n".join(way(results)))


if __name__ == "__main__":
    main()

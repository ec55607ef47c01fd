#!/usr/bin/env python3
"""Speed of several ranks: what they cost beside one process, around their instructions, and when parameters move.

  python3 bench/ranks.py [--parts threads,instructions,reallocation] [--preset small] [--rounds 3]

threads: steps of GRPO by two ranks of one thread (dp 2) and by one rank of two threads, in turn, on the same weights
and prompts. The first step of a process is left out; of the others the median counts, of the rounds the median ratio.
instructions: eight ranks of a small model; median over the steps of perf/us_per_instruction (docs/metrics.md).
reallocation: build/reshard_bench, parameters that move between four ranks beside raw messages of the same bytes.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path

from runs import PRESETS, ROOT, run, training_keys, write_model, write_prompts

SHAPE = {"prompts": 8, "samples": 4, "prompt": 64, "response": 128}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default="threads,instructions,reallocation")
    p.add_argument("--preset", default="small", choices=PRESETS)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3, help="timed steps of every process")
    p.add_argument("--build", default="build")
    p.add_argument("--work", default="build/bench-ranks")
    return p.parse_args()


def rows_of(folder):
    """The steps after the first."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]


def ranks_key(ranks, layout):
    return [f"cluster={{gpu: this-machine, nodes: 1, gpus_per_node: {ranks}}}", f"parallel={{{layout}}}"]


def step_s(a, work, name, *keys):
    shutil.rmtree(work / name, ignore_errors=True)
    run([f"{a.build}/braid", "train", *training_keys(work, work / "config.json", work / "prompts.jsonl", **SHAPE),
         f"run.name={name}", "algorithm.name=grpo", "algorithm.old_logprobs=sampler", "train.micro_tokens=1536",
         f"train.total_steps={a.steps + 1}", *keys])
    return statistics.median(row["time/step"] for row in rows_of(work / name))


def threads(a, work):
    vocab = write_model(work / "config.json", **PRESETS[a.preset])["vocab_size"]
    write_prompts(work / "prompts.jsonl", SHAPE["prompts"], SHAPE["prompt"], SHAPE["prompt"], vocab)
    rounds = [(step_s(a, work, "ranks", *ranks_key(2, "dp: 2"), "train.threads=1"),
               step_s(a, work, "threads", "train.threads=2")) for _ in range(a.rounds)]
    ratios = sorted(two / one for two, one in rounds)
    two, one = (statistics.median(r[i] for r in rounds) for i in (0, 1))
    print(f"{a.preset}: step of two ranks {two:.2f} s, of two threads {one:.2f} s; ratio {statistics.median(ratios):.2f} "
          f"({ratios[0]:.2f} to {ratios[-1]:.2f}; goal 1.15)", flush=True)


def instructions(a, work):
    for name, layout in (("dp 8", "dp: 8"), ("dp 2, tp 2, pp 2", "dp: 2, tp: 2, pp: 2")):
        shutil.rmtree(work / "eight", ignore_errors=True)
        run([f"{a.build}/braid", "train", "examples/cluster/grpo.yaml", *ranks_key(8, layout), "train.total_steps=8",
             f"run.dir={work}", "run.name=eight", "train.threads=1"])
        values = sorted(row["perf/us_per_instruction"] for row in rows_of(work / "eight"))
        print(f"eight ranks, {name}: {statistics.median(values):.0f} us of CPU per instruction "
              f"({values[0]:.0f} to {values[-1]:.0f}; goal 50)", flush=True)


def main():
    a = arguments()
    work = (ROOT / a.work).resolve()
    parts = a.parts.split(",")
    if "threads" in parts:
        threads(a, work)
    if "instructions" in parts:
        instructions(a, work)
    if "reallocation" in parts:
        print(run([Path(a.build) / "reshard_bench", 4, 256]), "goal: 60 % of raw messages", sep="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How long a checkpoint holds a run up: written beside the steps (checkpoint.async) and before the next one.

  python3 bench/checkpoint.py [--braid build/braid] [--work build/bench-checkpoint] [--hidden 768] [--layers 12] [--ranks 4]
                              [--pp 2] [--zero 1] [--vocab 64] [--steps 9] [--every 3] [--rounds 3] [--json out.json]

A model with random weights is trained on the ranks of one machine (--pp stages, the others replicas under ZeRO --zero).
With --pp 1 --zero 0 --vocab 32000 every rank holds all of a model whose largest tensor is more than a rank's share. Three kinds of runs in turn: no checkpoint but the last, checkpoints before the next step, checkpoints beside the
steps. Printed are bytes of a checkpoint, how long the run stands still for one (time/checkpoint: the copy, and what is
left of the one before) beside what writing takes (the same of the second kind), bytes that each rank wrote of one,
and what the steps themselves take in each kind: a thread that hashes and writes takes a core from a machine that has none to spare. Medians over rounds. Then the
most memory that each rank's process was resident with (VmHWM) while checkpoints were written beside the steps.

Goals: the run is held up for at most 10 % of what writing takes; the first rank's memory is at most 1.1 times that of the
rank with the most of the others; a checkpoint of at least 1 GB. Exit code 1 where one is not met.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL = 0.10  # of what writing takes
MEMORY_GOAL = 1.10  # of the first rank beside the others
LEAST_BYTES = 1e9


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--braid", default="build/braid")
    p.add_argument("--work", default="build/bench-checkpoint")
    p.add_argument("--hidden", type=int, default=768)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--pp", type=int, default=2)
    p.add_argument("--zero", type=int, default=1)
    p.add_argument("--vocab", type=int, default=64)
    p.add_argument("--steps", type=int, default=9)
    p.add_argument("--every", type=int, default=3)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--json", default="")
    return p.parse_args()


def model_config(args, work):
    config = json.loads((ROOT / "tests/data/models/qwen2/config.json").read_text())
    config.update(hidden_size=args.hidden, intermediate_size=4 * args.hidden, num_hidden_layers=args.layers,
                  num_attention_heads=args.hidden // 64, num_key_value_heads=args.hidden // 64, vocab_size=args.vocab)
    config.pop("layer_types", None)
    config.pop("head_dim", None)
    path = work / "config.json"
    path.write_text(json.dumps(config))
    return path


def plan_file(args, work):
    path = work / "bench.plan.yaml"
    stages = f", pp: {args.pp}, micro_batches: 2" if args.pp > 1 else ""
    zero = f", zero: {args.zero}" if args.zero > 0 else ""
    path.write_text(f"graph: sft\ndevices: 1x{args.ranks}\ncalls:\n"
                    f"  update_actor: {{mesh: all, dp: {args.ranks // args.pp}{stages}{zero}}}\n")
    return path


def children(process):
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def note_memory(process, peaks):
    """The most bytes of each rank below a process, so far."""
    for child in children(process):
        note_memory(child, peaks)
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
        except OSError:  # it has ended
            continue
        rank = next((int(word[5:]) for word in environment if word.startswith(b"RANK=")), None)
        most = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
        if rank is not None:
            peaks[rank] = max(peaks.get(rank, 0), 1024 * most)


def watched(command):
    """Runs it; the most memory of each of its ranks."""
    peaks = {}
    with subprocess.Popen(command, cwd=ROOT) as process:
        while process.poll() is None:
            note_memory(process.pid, peaks)
            time.sleep(0.1)
        if process.returncode != 0:
            sys.exit(f"exit code {process.returncode}: {' '.join(command)}")
    return peaks


def share_bytes(checkpoints):
    """What each rank wrote of the newest checkpoint."""
    shares = {}
    for file in sorted(checkpoints.iterdir())[-1].glob("*.rank-*.safetensors"):
        rank = int(file.name.split(".rank-")[1].split(".")[0])
        shares[rank] = shares.get(rank, 0) + file.stat().st_size
    return shares


def run(args, work, name, more):
    shutil.rmtree(work / name, ignore_errors=True)
    tokenizer = ROOT / "examples/quickstart/model"
    command = [args.braid, "sft", f"run.dir={work}", f"run.name={name}", f"model.config={model_config(args, work)}",
               f"tokenizer.path={tokenizer}", "data.train=task:sort_digits", f"plan.file={plan_file(args, work)}",
               "rollout.prompts_per_step=8", "train.minibatches=1", "train.threads=1", "log.console=false",
               "log.tensorboard=false", f"train.total_steps={args.steps}", "checkpoint.keep_last=1", *more]
    peaks = watched(command)
    rows = [json.loads(line) for line in (work / name / "metrics.jsonl").read_text().splitlines()]
    # A row has the time of the checkpoint before its step.
    held = [row["time/checkpoint"] for row in rows[1:] if row["step"] % args.every == 0]
    steps = [row["time/step"] for row in rows[1:]]
    shares = share_bytes(work / name / "checkpoints")
    shutil.rmtree(work / name)
    return held, steps, shares, peaks


def goal(text, met):
    return f"goal: {text}, {'met' if met else 'NOT met'}"


def by_rank(sizes):
    return ", ".join(f"{size / 1e6:.0f}" for _, size in sorted(sizes.items()))


def say(result):
    """Whether all goals are met, each said."""
    share, memory, size = result["held_share"], result["first_beside_others"], result["bytes"]
    met = share <= GOAL, memory <= MEMORY_GOAL, size >= LEAST_BYTES
    print(f"checkpoint of {size / 1e9:.2f} GB ({goal(f'at least {LEAST_BYTES / 1e9:g} GB', met[2])}) on {result['ranks']} ranks")
    print(f"writing takes {result['writing_s']:.3f} s, beside the steps it holds the run for {result['held_s']:.3f} s: "
          f"{share:.1%} ({goal(f'at most {GOAL:.0%}', met[0])})")
    print(f"written by rank, MB: {by_rank(result['share_bytes'])}")
    for kind, mean in result["step_s"].items():
        print(f"  mean step, checkpoints {kind}: {mean:.3f} s")
    print(f"most memory by rank, MB: {by_rank(result['peak_bytes'])}")
    print(f"rank 0's is {memory:.3f} times that of the others ({goal(f'at most {MEMORY_GOAL:g}', met[1])})")
    return all(met)


def main():
    args = arguments()
    work = Path(args.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    every = [f"checkpoint.every_steps={args.every}", "checkpoint.every_minutes=0"]
    kinds = {"none": ["checkpoint.every_minutes=0"], "before the next step": [*every, "checkpoint.async=false"],
             "beside the steps": every}
    held, steps, shares, peaks = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}, {}, {}
    for _ in range(args.rounds):
        for kind, more in kinds.items():
            run_held, run_steps, shares, run_peaks = run(args, work, "run", more)
            held[kind] += run_held
            steps[kind] += run_steps
            if kind == "beside the steps":
                peaks = {rank: max(peaks.get(rank, 0), most) for rank, most in run_peaks.items()}
    writing = statistics.median(held["before the next step"])
    beside = statistics.median(held["beside the steps"])
    others = max(most for rank, most in peaks.items() if rank != 0)
    result = {"bytes": sum(shares.values()), "share_bytes": shares, "ranks": args.ranks, "writing_s": writing, "held_s": beside, "held_share": beside / writing,
              "peak_bytes": peaks, "first_beside_others": peaks[0] / others,
              "step_s": {kind: statistics.mean(of) for kind, of in steps.items()}}
    good = say(result)
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
